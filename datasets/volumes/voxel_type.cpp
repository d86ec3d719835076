#include "datasets/volumes/voxel_type.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

namespace trireme {
namespace {

/// A truth value of one byte; every value but 0 is true.
struct Truth {
  std::uint8_t byte;
};

/// The tensor type that holds all values of T.
template <class T>
struct HeldAs {
  using Type = T;
};
template <>
struct HeldAs<std::uint16_t> {
  using Type = std::int32_t;
};
template <>
struct HeldAs<std::uint32_t> {
  using Type = std::int64_t;
};
template <>
struct HeldAs<std::uint64_t> {
  using Type = std::int64_t;
};
template <>
struct HeldAs<f16> {
  using Type = float;
};
template <>
struct HeldAs<Truth> {
  using Type = bool;
};
template <class T>
using Held = typename HeldAs<T>::Type;

template <class T>
constexpr bool is_whole = std::is_integral_v<T> || std::is_same_v<T, Truth>;

template <class T, class To>
bool decode_as(const std::byte* from, Index n, std::byte* to) {
  for (Index i = 0; i < n; ++i) {
    T number;
    std::memcpy(&number, from + i * Index{sizeof(T)}, sizeof(T));
    To value;
    if constexpr (std::is_same_v<T, Truth>) {
      value = static_cast<To>(number.byte != 0);
    } else if constexpr (std::is_same_v<T, f16>) {
      value = static_cast<To>(static_cast<float>(number));
    } else {
      if constexpr (std::is_same_v<T, std::uint64_t> && std::is_same_v<To, std::int64_t>)
        if (number > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) return false;
      value = static_cast<To>(number);
    }
    std::memcpy(to + i * Index{sizeof(To)}, &value, sizeof(To));
  }
  return true;
}
template <class T>
bool decode(const std::byte* from, Index n, DType as, std::byte* to) {
  if (as == DType::f32) return decode_as<T, float>(from, n, to);
  if (as == DType::f64) return decode_as<T, double>(from, n, to);
  if constexpr (is_whole<T>)
    if (as == DType::i64) return decode_as<T, std::int64_t>(from, n, to);
  return as == dtype_of<Held<T>>() && decode_as<T, Held<T>>(from, n, to);
}

/// Converts to the nearest number. Returns false if there is none.
template <class T, class From>
bool fit(From value, T& number) {
  if constexpr (std::is_same_v<T, Truth>) {
    number.byte = value != From{};
    return value == From{} || value == static_cast<From>(1);
  } else if constexpr (std::is_same_v<T, f16>) {
    number = f16(static_cast<float>(value));
    return !std::isfinite(static_cast<double>(value)) || std::isfinite(static_cast<float>(number));
  } else if constexpr (std::is_floating_point_v<T>) {
    number = static_cast<T>(value);
    return !std::isfinite(static_cast<double>(value)) || std::isfinite(number);
  } else if constexpr (std::is_floating_point_v<From>) {
    const double whole = std::nearbyint(static_cast<double>(value));
    constexpr double below = static_cast<double>(std::numeric_limits<T>::min());
    constexpr double end = 2.0 * static_cast<double>(T{1} << (std::numeric_limits<T>::digits - 1));
    if (!(whole >= below && whole < end)) return false;
    number = static_cast<T>(whole);
    return true;
  } else {
    if (!std::in_range<T>(value)) return false;
    number = static_cast<T>(value);
    return true;
  }
}
template <class T, class From>
bool encode_from(const std::byte* from, Index n, std::byte* to) {
  for (Index i = 0; i < n; ++i) {
    From value;
    std::memcpy(&value, from + i * Index{sizeof(From)}, sizeof(From));
    T number;
    if (!fit<T>(value, number)) return false;
    std::memcpy(to + i * Index{sizeof(T)}, &number, sizeof(T));
  }
  return true;
}
template <class T>
bool encode(const std::byte* from, DType of, Index n, std::byte* to) {
  if (of == DType::f32) return encode_from<T, float>(from, n, to);
  if (of == DType::f64) return encode_from<T, double>(from, n, to);
  if constexpr (is_whole<T>)
    if (of == DType::i64) return encode_from<T, std::int64_t>(from, n, to);
  if (of != dtype_of<Held<T>>()) return false;
  // A bool in memory must be 0 or 1.
  return encode_from<T, std::conditional_t<std::is_same_v<T, Truth>, std::uint8_t, Held<T>>>(from, n, to);
}

template <class T>
constexpr VoxelType row(std::string_view name, std::string_view code) {
  return {name, code, sizeof(T), dtype_of<Held<T>>(), std::is_same_v<T, Held<T>>, decode<T>, encode<T>};
}
constexpr VoxelType types[] = {
    row<std::uint8_t>("uint8", "u1"),   row<std::int8_t>("int8", "i1"),     row<std::uint16_t>("uint16", "u2"),
    row<std::int16_t>("int16", "i2"),   row<std::uint32_t>("uint32", "u4"), row<std::int32_t>("int32", "i4"),
    row<std::uint64_t>("uint64", "u8"), row<std::int64_t>("int64", "i8"),   row<f16>("float16", "f2"),
    row<float>("float32", "f4"),        row<double>("float64", "f8"),       row<Truth>("bool", "b1")};

}  // namespace

const VoxelType* find_voxel_type(std::string_view name) {
  const auto at = std::ranges::find_if(types, [&](const VoxelType& t) { return t.name == name || t.code == name; });
  return at == std::end(types) ? nullptr : at;
}

std::string voxel_type_names() {
  std::string all;
  for (const VoxelType& type : types) all += (all.empty() ? "" : ", ") + std::string(type.name);
  return all;
}

}  // namespace trireme
