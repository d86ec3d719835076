// IEEE half precision as CUDA spells it; the compiler's own type does the rounding.
#pragma once
#include <bit>

#include "emulator/types.h"

struct alignas(2) __half {
  unsigned short bits;
};
using half = __half;
struct alignas(4) __half2 {
  __half x, y;
};
using half2 = __half2;
inline __half __ushort_as_half(unsigned short v) { return {v}; }
inline unsigned short __half_as_ushort(__half v) { return v.bits; }
inline float __half2float(__half v) { return static_cast<float>(std::bit_cast<_Float16>(v.bits)); }
inline __half __float2half_rn(float v) {
  if (v != v) return {0x7fff};  // as the hardware: one NaN for all
  return {std::bit_cast<unsigned short>(static_cast<_Float16>(v))};
}
inline __half __float2half(float v) { return __float2half_rn(v); }
inline __half2 __floats2half2_rn(float x, float y) { return {__float2half_rn(x), __float2half_rn(y)}; }
inline __half2 __float22half2_rn(float2 v) { return __floats2half2_rn(v.x, v.y); }
inline float2 __half22float2(__half2 v) { return {__half2float(v.x), __half2float(v.y)}; }
