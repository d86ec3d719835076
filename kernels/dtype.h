// Element types of tensors, and dispatch() from a run-time DType to a C++ type.
#pragma once
#include <bit>
#include <cstdint>
#include <string_view>

#include "kernels/error.h"

namespace trireme {

enum class DType : std::uint8_t { f32, f64, bf16, i32, i64, u8 };

/// bfloat16: the upper half of an IEEE float, rounded to nearest even.
struct bf16 {
  bf16() = default;
  bf16(float value) {  // NOLINT: implicit, as between arithmetic types
    auto bits = std::bit_cast<std::uint32_t>(value);
    bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    bits_ = static_cast<std::uint16_t>(nan ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }
  operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits_) << 16); }  // NOLINT

 private:
  std::uint16_t bits_;
};

constexpr int size_of(DType t) {
  switch (t) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16: return 2;
    case DType::u8: return 1;
  }
  return 0;
}

constexpr std::string_view name_of(DType t) {
  switch (t) {
    case DType::f32: return "f32";
    case DType::f64: return "f64";
    case DType::bf16: return "bf16";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
    case DType::u8: return "u8";
  }
  return "?";
}

constexpr bool is_float(DType t) { return t == DType::f32 || t == DType::f64 || t == DType::bf16; }

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::f32;
  if constexpr (std::is_same_v<T, double>) return DType::f64;
  if constexpr (std::is_same_v<T, bf16>) return DType::bf16;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::i32;
  if constexpr (std::is_same_v<T, std::int64_t>) return DType::i64;
  if constexpr (std::is_same_v<T, std::uint8_t>) return DType::u8;
}

/// The type in which a sum of T is kept: double for f64, float for f32 and bf16.
template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Calls f(T{}) with the floating type behind t (f32, f64 or bf16). Throws Error naming op for any other type.
template <class F>
decltype(auto) dispatch_float(DType t, std::string_view op, F&& f) {
  switch (t) {
    case DType::f32: return f(float{});
    case DType::f64: return f(double{});
    case DType::bf16: return f(bf16{});
    default: fail(op, "wants a floating type (f32, f64, bf16), got {}", name_of(t));
  }
}

/// Calls f(T{}) with the type behind t.
template <class F>
decltype(auto) dispatch_any(DType t, F&& f) {
  switch (t) {
    case DType::f32: return f(float{});
    case DType::f64: return f(double{});
    case DType::bf16: return f(bf16{});
    case DType::i32: return f(std::int32_t{});
    case DType::i64: return f(std::int64_t{});
    case DType::u8: break;
  }
  return f(std::uint8_t{});
}

}  // namespace trireme
