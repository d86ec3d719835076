// Element types of tensors, and the dispatch functions that turn a run-time DType into a C++ type.
#pragma once
#include <cstdint>
#include <string_view>

#include "kernels/core/error.h"
#include "kernels/core/half_types.h"

namespace trireme {

/// Element type of a tensor: IEEE 754 f32, f64 and f16, bfloat16, signed and unsigned integers, and boolean (one byte,
/// 0 or 1).
enum class DType : std::uint8_t { f32, f64, bf16, f16, i32, i64, u8, i8, i16, boolean };

/// Bytes of one element.
constexpr int size_of(DType t) {
  switch (t) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16:
    case DType::f16:
    case DType::i16: return 2;
    case DType::u8:
    case DType::i8:
    case DType::boolean: return 1;
  }
  return 0;
}

/// "f32", "bf16", "bool", ...
constexpr std::string_view name_of(DType t) {
  switch (t) {
    case DType::f32: return "f32";
    case DType::f64: return "f64";
    case DType::bf16: return "bf16";
    case DType::f16: return "f16";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
    case DType::u8: return "u8";
    case DType::i8: return "i8";
    case DType::i16: return "i16";
    case DType::boolean: return "bool";
  }
  return "?";
}

/// bf16 or f16.
constexpr bool is_half(DType t) { return t == DType::bf16 || t == DType::f16; }
/// f32, f64, bf16 or f16.
constexpr bool is_float(DType t) { return t == DType::f32 || t == DType::f64 || is_half(t); }

/// A signed or unsigned integer type; false for boolean.
constexpr bool is_integer(DType t) { return !is_float(t) && t != DType::boolean; }

/// The DType of a C++ type.
template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::f32;
  if constexpr (std::is_same_v<T, double>) return DType::f64;
  if constexpr (std::is_same_v<T, bf16>) return DType::bf16;
  if constexpr (std::is_same_v<T, f16>) return DType::f16;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::i32;
  if constexpr (std::is_same_v<T, std::int64_t>) return DType::i64;
  if constexpr (std::is_same_v<T, std::uint8_t>) return DType::u8;
  if constexpr (std::is_same_v<T, std::int8_t>) return DType::i8;
  if constexpr (std::is_same_v<T, std::int16_t>) return DType::i16;
  if constexpr (std::is_same_v<T, bool>) return DType::boolean;
}

/// Whether T is one of the types Of.
template <class T, class... Of>
concept OneOf = (std::is_same_v<T, Of> || ...);
/// A C++ type that has a DType.
template <class T>
concept Element =
    OneOf<T, float, double, bf16, f16, std::int32_t, std::int64_t, std::uint8_t, std::int8_t, std::int16_t, bool>;

/// The type for sums of T: double for double, else float.
template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;
/// The type for arithmetic on T: Accumulator<T> for floating types, 32 bits for shorter integers. The result is then
/// truncated to T's width.
template <class T>
using ComputeType =
    std::conditional_t<!std::is_integral_v<T>, Accumulator<T>, std::conditional_t<(sizeof(T) < 4), std::int32_t, T>>;

/// A number converted to an element: through float for bf16 and f16, through i32 for integers shorter than 32 bits (so
/// -1 as u8 is 255 on every device). For bool every number except 0 is true.
template <class T, class S>
constexpr T element(S value) {
  if constexpr (std::is_same_v<T, S>)
    return value;
  else if constexpr (std::is_same_v<T, bool>)
    return static_cast<ComputeType<S>>(value) != ComputeType<S>{};
  else if constexpr (is_narrow_type<T>)
    return T(static_cast<float>(value));
  else if constexpr (is_narrow_type<S>)
    return element<T>(static_cast<float>(value));
  else if constexpr (std::is_integral_v<T> && sizeof(T) < 4)
    return static_cast<T>(static_cast<std::int32_t>(value));
  else
    return static_cast<T>(value);
}

/// Calls f(T{}) with the C++ type of t, if the CPU computes in it: f32, f64 or bf16 (f16 is for GPUs and files). Throws
/// Error naming op for any other type.
template <class F>
decltype(auto) dispatch_float(DType t, std::string_view op, F&& f) {
  switch (t) {
    case DType::f32: return f(float{});
    case DType::f64: return f(double{});
    case DType::bf16: return f(bf16{});
    default: fail(op, "got {}, expected a floating type (f32, f64, bf16)", name_of(t));
  }
}

/// Calls f(T{}) with the floating type of t, f16 included: for GPUs. Throws Error naming op for integers and boolean.
template <class F>
decltype(auto) dispatch_device_float(DType t, std::string_view op, F&& f) {
  return t == DType::f16 ? f(f16{}) : dispatch_float(t, op, f);
}

/// Calls f(T{}) with the C++ type of t.
template <class F>
decltype(auto) dispatch_any(DType t, F&& f) {
  switch (t) {
    case DType::f32: return f(float{});
    case DType::f64: return f(double{});
    case DType::bf16: return f(bf16{});
    case DType::f16: return f(f16{});
    case DType::i32: return f(std::int32_t{});
    case DType::i64: return f(std::int64_t{});
    case DType::u8: return f(std::uint8_t{});
    case DType::i8: return f(std::int8_t{});
    case DType::i16: return f(std::int16_t{});
    case DType::boolean: break;
  }
  return f(bool{});
}
/// Calls f(T{}) with the type in which numbers of t are computed: integers as they are, boolean as std::uint8_t, and
/// floating types by `floats` (dispatch_float or dispatch_device_float).
template <class Floats, class F>
decltype(auto) dispatch_number(DType t, std::string_view op, Floats&& floats, F&& f) {
  switch (t) {
    case DType::i32: return f(std::int32_t{});
    case DType::i64: return f(std::int64_t{});
    case DType::i8: return f(std::int8_t{});
    case DType::i16: return f(std::int16_t{});
    case DType::u8:
    case DType::boolean: return f(std::uint8_t{});
    default: return floats(t, op, f);
  }
}

}  // namespace trireme
