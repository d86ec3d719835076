// Element types of tensors, and dispatch() from a run-time DType to a C++ type.
#pragma once
#include <cstdint>
#include <string_view>

#include "kernels/core/error.h"
#include "kernels/core/half_types.h"

namespace trireme {

/// Element type of a tensor: IEEE 754 f32, f64 and f16, bfloat16, signed and unsigned integers.
enum class DType : std::uint8_t { f32, f64, bf16, f16, i32, i64, u8 };

/// Bytes of one element.
constexpr int size_of(DType t) {
  switch (t) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16:
    case DType::f16: return 2;
    case DType::u8: return 1;
  }
  return 0;
}

/// "f32", "bf16", ...: the enumerator's name.
constexpr std::string_view name_of(DType t) {
  switch (t) {
    case DType::f32: return "f32";
    case DType::f64: return "f64";
    case DType::bf16: return "bf16";
    case DType::f16: return "f16";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
    case DType::u8: return "u8";
  }
  return "?";
}

/// bf16 or f16.
constexpr bool is_half(DType t) { return t == DType::bf16 || t == DType::f16; }
/// f32, f64, bf16 or f16.
constexpr bool is_float(DType t) { return t == DType::f32 || t == DType::f64 || is_half(t); }

/// The DType of C++ type T, which is float, double, bf16, f16, std::int32_t, std::int64_t or std::uint8_t.
template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::f32;
  if constexpr (std::is_same_v<T, double>) return DType::f64;
  if constexpr (std::is_same_v<T, bf16>) return DType::bf16;
  if constexpr (std::is_same_v<T, f16>) return DType::f16;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::i32;
  if constexpr (std::is_same_v<T, std::int64_t>) return DType::i64;
  if constexpr (std::is_same_v<T, std::uint8_t>) return DType::u8;
}

/// A C++ type that dtype_of() knows.
template <class T>
concept Element =
    std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, bf16> || std::is_same_v<T, f16> ||
    std::is_same_v<T, std::int32_t> || std::is_same_v<T, std::int64_t> || std::is_same_v<T, std::uint8_t>;

/// The type in which a sum of T is kept: double for f64, float for the shorter ones.
template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// A number as an element: through float for bf16 and f16, through i32 for u8 (so that -1 as u8 is 255 everywhere).
template <class T, class S>
constexpr T element(S value) {
  if constexpr (std::is_same_v<T, S>)
    return value;
  else if constexpr (is_narrow_type<T>)
    return T(static_cast<float>(value));
  else if constexpr (is_narrow_type<S>)
    return element<T>(static_cast<float>(value));
  else if constexpr (std::is_same_v<T, std::uint8_t>)
    return static_cast<T>(static_cast<std::int32_t>(value));
  else
    return static_cast<T>(value);
}

/// Calls f(T{}) with the floating type behind t that the CPU computes in (f32, f64 or bf16; f16 is for GPUs, and for
/// files). Throws Error naming op for any other type.
template <class F>
decltype(auto) dispatch_float(DType t, std::string_view op, F&& f) {
  switch (t) {
    case DType::f32: return f(float{});
    case DType::f64: return f(double{});
    case DType::bf16: return f(bf16{});
    default: fail(op, "wants a floating type (f32, f64, bf16), got {}", name_of(t));
  }
}

/// Calls f(T{}) with the floating type behind t, f16 among them: for GPUs. Throws Error naming op for integers.
template <class F>
decltype(auto) dispatch_device_float(DType t, std::string_view op, F&& f) {
  return t == DType::f16 ? f(f16{}) : dispatch_float(t, op, f);
}

/// Calls f(T{}) with the type behind t.
template <class F>
decltype(auto) dispatch_any(DType t, F&& f) {
  switch (t) {
    case DType::f32: return f(float{});
    case DType::f64: return f(double{});
    case DType::bf16: return f(bf16{});
    case DType::f16: return f(f16{});
    case DType::i32: return f(std::int32_t{});
    case DType::i64: return f(std::int64_t{});
    case DType::u8: break;
  }
  return f(std::uint8_t{});
}

}  // namespace trireme
