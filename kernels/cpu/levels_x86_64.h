// How code is compiled for each vector width of x86-64, with GCC or Clang. levels.h includes this file.
#pragma once

namespace trireme::detail {

// f is a copy, so that the compiler knows that writes to memory do not change what it captures.
template <class F>
[[gnu::target("arch=x86-64-v4"), gnu::flatten, gnu::noinline]] void run_v4(F f) {
  f();
}
template <class F>
[[gnu::target("arch=x86-64-v3"), gnu::flatten, gnu::noinline]] void run_v3(F f) {
  f();
}
// CPUs without AVX2 get plain code: a third level of vector code would cost a quarter of the compile time.
template <class F>
[[gnu::optimize("O1"), gnu::flatten, gnu::noinline]] void run_base(F f) {
  f();
}
/// Code of v4 with AVX512_BF16.
template <class F>
[[gnu::target("arch=x86-64-v4,avx512bf16"), gnu::flatten, gnu::noinline]] void run_bf16(const F& f) {
  f();
}

template <auto loop>
struct Levels;
template <class... Args, void (*loop)(Args...)>
struct Levels<loop> {
  using Fn = void (*)(Args...);
  [[gnu::target("arch=x86-64-v4"), gnu::flatten]] static void v4(Args... args) { loop(args...); }
  [[gnu::target("arch=x86-64-v3"), gnu::flatten]] static void v3(Args... args) { loop(args...); }
  [[gnu::optimize("O1"), gnu::flatten]] static void base(Args... args) { loop(args...); }
  static constexpr Fn of[3] = {base, v3, v4};  // by VectorLevel
};

inline constexpr bool is_x86_64 = true;
// Clang 16 knows no names of levels. A CPU with these instructions of v3 has the others, too.
inline bool cpu_has_v3() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}
inline bool cpu_has_v4() {
  return cpu_has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

}  // namespace trireme::detail
