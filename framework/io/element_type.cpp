#include "framework/io/element_type.h"

#include <cstdint>
#include <cstring>

#include "kernels/core/half_types.h"

namespace trireme {
namespace {

template <class From, class To>
bool copy(const std::byte* from, Index stride, Index n, std::byte* to) {
  for (Index i = 0; i < n; ++i) {
    From value;
    std::memcpy(&value, from + i * stride * Index{sizeof value}, sizeof value);
    if constexpr (std::is_same_v<From, std::uint64_t> && std::is_same_v<To, std::int64_t>)
      if (value > std::uint64_t{INT64_MAX}) return false;
    const To wide = static_cast<To>(value);
    std::memcpy(to + i * Index{sizeof wide}, &wide, sizeof wide);
  }
  return true;
}
template <class T>
bool same(const std::byte* from, Index stride, Index n, std::byte* to) {
  if (stride != 1) return copy<T, T>(from, stride, n, to);
  std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
  return true;
}
/// Any byte but 0 is true.
bool truth(const std::byte* from, Index stride, Index n, std::byte* to) {
  for (Index i = 0; i < n; ++i) to[i] = std::byte{from[i * stride] != std::byte{0}};
  return true;
}

constexpr ElementType types[] = {{"F64", 8, DType::f64, true, same<std::uint64_t>},
                                 {"F32", 4, DType::f32, true, same<std::uint32_t>},
                                 {"F16", 2, DType::f32, false, copy<f16, float>},
                                 {"BF16", 2, DType::bf16, true, same<std::uint16_t>},
                                 {"I64", 8, DType::i64, true, same<std::uint64_t>},
                                 {"I32", 4, DType::i32, true, same<std::uint32_t>},
                                 {"I16", 2, DType::i16, true, same<std::uint16_t>},
                                 {"I8", 1, DType::i8, true, same<std::uint8_t>},
                                 {"U64", 8, DType::i64, false, copy<std::uint64_t, std::int64_t>},
                                 {"U32", 4, DType::i64, false, copy<std::uint32_t, std::int64_t>},
                                 {"U16", 2, DType::i32, false, copy<std::uint16_t, std::int32_t>},
                                 {"U8", 1, DType::u8, true, same<std::uint8_t>},
                                 {"BOOL", 1, DType::boolean, false, truth}};

}  // namespace

const ElementType* find_element_type(std::string_view name) {
  for (const ElementType& type : types)
    if (type.name == name) return &type;
  return nullptr;
}

}  // namespace trireme
