// Functions of device code that are nothing but arithmetic, loads and stores.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

#include "emulator/types.h"

// min and max as CUDA has them: beside std's, for mixed types too. Of NaN and a number they give the number.
#define EMULATOR_MIN_MAX(T, A, B)                                                                                  \
  inline T min(A a, B b) { return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(a) : static_cast<T>(b); } \
  inline T max(A a, B b) { return static_cast<T>(a) > static_cast<T>(b) ? static_cast<T>(a) : static_cast<T>(b); }
EMULATOR_MIN_MAX(int, int, int)
EMULATOR_MIN_MAX(unsigned, unsigned, unsigned)
EMULATOR_MIN_MAX(unsigned, int, unsigned)
EMULATOR_MIN_MAX(unsigned, unsigned, int)
EMULATOR_MIN_MAX(long, long, long)
EMULATOR_MIN_MAX(unsigned long, unsigned long, unsigned long)
EMULATOR_MIN_MAX(unsigned long, long, unsigned long)
EMULATOR_MIN_MAX(unsigned long, unsigned long, long)
EMULATOR_MIN_MAX(long long, long long, long long)
EMULATOR_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
EMULATOR_MIN_MAX(unsigned long long, long long, unsigned long long)
EMULATOR_MIN_MAX(unsigned long long, unsigned long long, long long)
#undef EMULATOR_MIN_MAX
inline float min(float a, float b) { return std::fmin(a, b); }
inline float max(float a, float b) { return std::fmax(a, b); }
inline double min(double a, double b) { return std::fmin(a, b); }
inline double max(double a, double b) { return std::fmax(a, b); }
inline double min(float a, double b) { return std::fmin(static_cast<double>(a), b); }
inline double max(float a, double b) { return std::fmax(static_cast<double>(a), b); }
inline double min(double a, float b) { return std::fmin(a, static_cast<double>(b)); }
inline double max(double a, float b) { return std::fmax(a, static_cast<double>(b)); }

// Rounded to nearest, as the operators are; CUDA's own are never joined to a fused multiply-add.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline double __dsqrt_rn(double a) { return std::sqrt(a); }
inline float rsqrtf(float a) { return 1.0f / std::sqrt(a); }
inline double rsqrt(double a) { return 1.0 / std::sqrt(a); }
inline float rsqrt(float a) { return rsqrtf(a); }
// The quick ones: exact here, within a few units of the last place there.
inline float __expf(float a) { return std::exp(a); }
inline float __logf(float a) { return std::log(a); }
inline float __sinf(float a) { return std::sin(a); }
inline float __cosf(float a) { return std::cos(a); }
inline float __powf(float a, float b) { return std::pow(a, b); }
inline float __tanhf(float a) { return std::tanh(a); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frsqrt_rn(float a) { return rsqrtf(a); }
inline float __saturatef(float a) { return a > 0 ? (a < 1 ? a : 1.0f) : 0.0f; }
inline void __sincosf(float a, float* s, float* c) {
  *s = std::sin(a);
  *c = std::cos(a);
}
inline void sincospif(float a, float* s, float* c) {
  const double turns = static_cast<double>(a) * 3.14159265358979323846;
  *s = static_cast<float>(std::sin(turns));
  *c = static_cast<float>(std::cos(turns));
}

inline int __float_as_int(float v) { return std::bit_cast<int>(v); }
inline unsigned __float_as_uint(float v) { return std::bit_cast<unsigned>(v); }
inline float __int_as_float(int v) { return std::bit_cast<float>(v); }
inline float __uint_as_float(unsigned v) { return std::bit_cast<float>(v); }
inline long long __double_as_longlong(double v) { return std::bit_cast<long long>(v); }
inline double __longlong_as_double(long long v) { return std::bit_cast<double>(v); }
inline int __float2int_rn(float v) { return static_cast<int>(std::nearbyint(v)); }
inline int __float2int_rz(float v) { return static_cast<int>(v); }
inline float __int2float_rn(int v) { return static_cast<float>(v); }
inline float __uint2float_rn(unsigned v) { return static_cast<float>(v); }
inline float __double2float_rn(double v) { return static_cast<float>(v); }

inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<std::uint64_t>(a) * b) >> 32);
}
inline int __mulhi(int a, int b) { return static_cast<int>((static_cast<std::int64_t>(a) * b) >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>((static_cast<unsigned __int128>(a) * b) >> 64);
}
inline int __popc(unsigned v) { return std::popcount(v); }
inline int __popcll(unsigned long long v) { return std::popcount(v); }
inline int __clz(int v) { return std::countl_zero(static_cast<unsigned>(v)); }
inline int __clzll(long long v) { return std::countl_zero(static_cast<unsigned long long>(v)); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }
inline unsigned __brev(unsigned v) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; ++i) reversed |= (v >> i & 1u) << (31 - i);
  return reversed;
}

// Loads and stores with a word about the caches.
template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
template <class T>
T __ldca(const T* p) {
  return *p;
}
template <class T>
void __stcs(T* p, T v) {
  *p = v;
}
template <class T>
void __stcg(T* p, T v) {
  *p = v;
}
template <class T>
void __stwt(T* p, T v) {
  *p = v;
}
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __threadfence(); }
inline void __threadfence_system() { __threadfence(); }
inline void __nanosleep(unsigned) {}
[[noreturn]] inline void __trap() { std::abort(); }

// Atomics. Ranks that are threads launch at once, so these are true ones.
namespace emulator {
template <class T, class F>
T replace(T* at, F next) {
  T before, after;
  __atomic_load(at, &before, __ATOMIC_RELAXED);
  do {
    after = next(before);
  } while (!__atomic_compare_exchange(at, &before, &after, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
  return before;
}
template <class T>
concept Atomic32 = std::is_same_v<T, int> || std::is_same_v<T, unsigned> || std::is_same_v<T, unsigned long long>;
}  // namespace emulator
template <class T>
requires emulator::Atomic32<T> || std::is_floating_point_v<T> T atomicAdd(T* at, std::type_identity_t<T> v) {
  return emulator::replace(at, [v](T old) { return static_cast<T>(old + v); });
}
template <class T>
requires emulator::Atomic32<T> || std::is_same_v<T, long long> T atomicMax(T* at, std::type_identity_t<T> v) {
  return emulator::replace(at, [v](T old) { return old < v ? v : old; });
}
template <class T>
requires emulator::Atomic32<T> || std::is_same_v<T, long long> T atomicMin(T* at, std::type_identity_t<T> v) {
  return emulator::replace(at, [v](T old) { return v < old ? v : old; });
}
template <class T>
requires emulator::Atomic32<T> T atomicOr(T* at, std::type_identity_t<T> v) {
  return emulator::replace(at, [v](T old) { return old | v; });
}
template <class T>
requires emulator::Atomic32<T> T atomicAnd(T* at, std::type_identity_t<T> v) {
  return emulator::replace(at, [v](T old) { return old & v; });
}
template <class T>
requires emulator::Atomic32<T> || std::is_same_v<T, float> T atomicExch(T* at, std::type_identity_t<T> v) {
  return emulator::replace(at, [v](T) { return v; });
}
template <class T>
requires emulator::Atomic32<T> || std::is_same_v<T, unsigned short> T atomicCAS(T* at, std::type_identity_t<T> expected,
                                                                                std::type_identity_t<T> v) {
  return emulator::replace(at, [&](T old) { return old == expected ? v : old; });
}
/// Counts up to `most`, then from 0 again.
inline unsigned atomicInc(unsigned* at, unsigned most) {
  return emulator::replace(at, [most](unsigned old) { return old >= most ? 0 : old + 1; });
}
