// IEEE half precision, as files hold it.
#pragma once
#include <bit>
#include <cstdint>

namespace trireme {

/// Exact.
inline float from_half(std::uint16_t h) {
  std::uint32_t sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 31u, mantissa = h & 0x3ffu;
  if (exponent == 0) {
    float subnormal = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -subnormal : subnormal;
  }
  std::uint32_t wide = exponent == 31 ? 255 : exponent + 112;  // biases: 15 and 127
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

}  // namespace trireme
