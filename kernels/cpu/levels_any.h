// How vector code is compiled for processors other than x86-64: for the vectors that all CPUs of the family have, such
// as NEON on aarch64. levels.h includes this file.
#pragma once

namespace trireme::detail {

// f is a copy, so that the compiler knows that writes to memory do not change what it captures.
template <class F>
[[gnu::flatten, gnu::noinline]] void run_base(F f) {
  f();
}
template <class F>
void run_v3(F f) {
  run_base(f);
}
template <class F>
void run_v4(F f) {
  run_base(f);
}
template <class F>
void run_bf16(F f) {
  run_base(f);
}

template <auto loop>
struct Levels;
template <class... Args, void (*loop)(Args...)>
struct Levels<loop> {
  using Fn = void (*)(Args...);
  [[gnu::flatten]] static void base(Args... args) { loop(args...); }
  static constexpr Fn of[3] = {base, base, base};  // by VectorLevel
};

inline constexpr bool is_x86_64 = false;
constexpr bool cpu_has_v3() { return false; }
constexpr bool cpu_has_v4() { return false; }

}  // namespace trireme::detail
