// The 16-bit floating types bf16 and f16. Arithmetic on them is done in float.
#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

namespace trireme {

/// bfloat16: the upper 16 bits of an IEEE float.
struct bf16 {
  bf16() = default;
  /// Rounds to nearest even; NaN stays NaN.
  constexpr bf16(float value) : bits_(round(std::bit_cast<std::uint32_t>(value))) {}  // NOLINT: implicit
  /// Exact.
  constexpr operator float() const {  // NOLINT: implicit
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits_) << 16);
  }

 private:
  static constexpr std::uint16_t round(std::uint32_t bits) {
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return static_cast<std::uint16_t>(nan ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }
  std::uint16_t bits_;
};

/// IEEE half precision to float; exact.
constexpr float from_half(std::uint16_t h) {
  const std::uint32_t sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 31u, mantissa = h & 0x3ffu;
  if (exponent == 0) {
    const float subnormal = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -subnormal : subnormal;
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + 112;  // biases: 15 and 127
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}
/// Float to IEEE half precision, rounded to nearest even. Values from 65520 on become infinity; NaN stays NaN.
constexpr std::uint16_t to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u, size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (size >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (size < 0x38800000u) {  // below 2^-14: adding 0.5 leaves the subnormal's bits, rounded, at the end of the sum's
    const float shifted = std::bit_cast<float>(size) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
  return static_cast<std::uint16_t>(sign | ((size - 0x38000000u + 0xfffu + ((size >> 13) & 1u)) >> 13));
}

/// IEEE 754 half precision (binary16): 1 sign, 5 exponent and 10 mantissa bits.
struct f16 {
  f16() = default;
  /// Rounds to nearest even; NaN stays NaN.
  constexpr f16(float value) : bits_(to_half(value)) {}  // NOLINT: implicit
  /// Exact.
  constexpr operator float() const { return from_half(bits_); }  // NOLINT: implicit

 private:
  std::uint16_t bits_;
};

/// bf16 or f16.
template <class T>
constexpr bool is_narrow_type = std::is_same_v<T, bf16> || std::is_same_v<T, f16>;

}  // namespace trireme
