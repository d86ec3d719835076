// bfloat16 as CUDA spells it: the upper half of an IEEE float, rounded to nearest even.
#pragma once
#include <bit>
#include <cstdint>

#include "emulator/types.h"

struct alignas(2) __nv_bfloat16 {
  unsigned short bits;
};
using nv_bfloat16 = __nv_bfloat16;
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short v) { return {v}; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 v) { return v.bits; }
inline float __bfloat162float(__nv_bfloat16 v) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(v.bits) << 16);
}
inline __nv_bfloat16 __float2bfloat16_rn(float v) {
  const auto bits = std::bit_cast<std::uint32_t>(v);
  if (v != v) return {0x7fff};  // as the hardware: one NaN for all
  return {static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}
inline __nv_bfloat16 __float2bfloat16(float v) { return __float2bfloat16_rn(v); }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return __floats2bfloat162_rn(v.x, v.y); }
inline float2 __bfloat1622float2(__nv_bfloat162 v) { return {__bfloat162float(v.x), __bfloat162float(v.y)}; }
