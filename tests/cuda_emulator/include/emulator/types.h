// The words that CUDA adds to C++, and its vector types.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ static thread_local  // the blocks of a launch run one after the other, on one thread
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __grid_constant__

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1) : x(vx), y(vy), z(vz) {}  // NOLINT: as CUDA's
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}                                         // NOLINT
  constexpr operator uint3() const { return {x, y, z}; }                                      // NOLINT
};

namespace emulator {
template <class T>
struct alignas(2 * sizeof(T)) Two {
  T x, y;
};
template <class T>
struct Three {
  T x, y, z;
};
template <class T>
struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) Four {
  T x, y, z, w;
};
}  // namespace emulator
using char2 = emulator::Two<signed char>;
using char4 = emulator::Four<signed char>;
using uchar2 = emulator::Two<unsigned char>;
using uchar4 = emulator::Four<unsigned char>;
using short2 = emulator::Two<short>;
using short4 = emulator::Four<short>;
using ushort2 = emulator::Two<unsigned short>;
using ushort4 = emulator::Four<unsigned short>;
using int2 = emulator::Two<int>;
using int3 = emulator::Three<int>;
using int4 = emulator::Four<int>;
using uint2 = emulator::Two<unsigned>;
using uint4 = emulator::Four<unsigned>;
using longlong2 = emulator::Two<long long>;
using ulonglong2 = emulator::Two<unsigned long long>;
using float2 = emulator::Two<float>;
using float3 = emulator::Three<float>;
using float4 = emulator::Four<float>;
using double2 = emulator::Two<double>;
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float3 make_float3(float x, float y, float z) { return {x, y, z}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline double2 make_double2(double x, double y) { return {x, y}; }

// Of the thread that runs now: set whenever a fiber goes on. The library that holds them is small enough for the quick
// way to thread-local variables, even where it is opened late.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local uint3 threadIdx;
[[gnu::tls_model("initial-exec")]] extern constinit thread_local uint3 blockIdx;
[[gnu::tls_model("initial-exec")]] extern constinit thread_local dim3 blockDim;
[[gnu::tls_model("initial-exec")]] extern constinit thread_local dim3 gridDim;
constexpr int warpSize = 32;
