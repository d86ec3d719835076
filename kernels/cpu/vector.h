// Vector code of the light CPU kernels. Plain loops are compiled once per vector width of the processor's family, and
// the width is chosen at run time, so that one binary uses the CPU's widest vectors. Also helpers that these kernels
// share.
#pragma once
#include <vector>

#include "kernels/cpu/levels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/plans/checks.h"

namespace trireme {

/// x86-64's micro-architecture levels: v3 has AVX2 and FMA, v4 AVX-512 (F, BW, CD, DQ, VL). Other processors have
/// `base` only.
enum class VectorLevel { base, v3, v4 };
namespace detail {
/// The highest level that the CPU and oneDNN's limit ONEDNN_MAX_CPU_ISA both allow: AVX2 for v3, AVX512_CORE for v4.
VectorLevel find_vector_level();
}  // namespace detail
/// The level of this process, determined at the first call.
inline VectorLevel vector_level() {
  static const VectorLevel level = detail::find_vector_level();
  return level;
}

/// Vectors of `bytes` bytes at any address that is aligned for A, for loops that the compiler vectorises badly. Code
/// with them is written once for all levels. Clang needs -fmax-type-align=8: to it a reference to such a vector is
/// aligned as a whole vector.
template <class A, int bytes>
struct Vectors {
  using Vector [[gnu::vector_size(bytes), gnu::aligned(alignof(A)), gnu::may_alias]] = A;
  static constexpr int lanes = bytes / static_cast<int>(sizeof(A)), registers = bytes == 64 ? 32 : 16;
  [[gnu::always_inline]] static Vector& at(A* p) { return *reinterpret_cast<Vector*>(p); }
  [[gnu::always_inline]] static const Vector& at(const A* p) { return *reinterpret_cast<const Vector*>(p); }
  /// f(), inlined whole into code of this level.
  template <class F>
  static void run(const F& f) {
    if constexpr (bytes == 64)
      detail::run_v4(f);
    else if constexpr (bytes == 32)
      detail::run_v3(f);
    else
      f();
  }
};

/// A plain loop, void(Args...), as it is compiled for the widest vectors. One driver can call the loops of many
/// formulas by such pointers, so that each formula is no more code than its loop.
template <auto loop>
auto vectorised_loop() {
  return detail::Levels<loop>::of[static_cast<int>(vector_level())];
}

/// Calls f(), fully inlined into code for the widest vectors; or f(level), with a constant, where code differs. f
/// should capture by value, so that the compiler can assume that its pointers do not change.
template <class F>
void vectorised(const F& f) {
  switch (vector_level()) {
    case VectorLevel::v4: return detail::run_v4(f);
    case VectorLevel::v3: return detail::run_v3(f);
    case VectorLevel::base: return detail::run_base(f);
  }
}

/// to = value rounded to T. (In an `omp simd` loop, a bf16 temporary in the loop body would prevent vectorisation.)
template <class T>
void put(T& to, std::type_identity_t<ComputeType<T>> value) {
  to = static_cast<T>(value);
}

/// f(begin, end) over [0, n) as parallel_for does, with each chunk vectorised. f must capture by value and not throw.
template <class F>
void sweep(Index n, Index cost, F f) {
  parallel_for(n, cost, [&f](Index begin, Index end) { vectorised([f, begin, end] { f(begin, end); }); });
}

/// A block of this thread that is reused by later calls; contents undefined. slot distinguishes blocks that are in use
/// at the same time.
template <class T>
T* scratch(Index count, int slot) {
  thread_local std::vector<double> blocks[4];
  auto words = static_cast<std::size_t>(count) * sizeof(T) / sizeof(double) + 1;
  if (blocks[slot].size() < words) blocks[slot].resize(words);
  return reinterpret_cast<T*>(blocks[slot].data());
}

/// Number of copies of a row of channels that make a vector loop efficient: narrow rows are processed as fewer, wider
/// ones.
constexpr Index repeats(Index channels) { return channels >= 64 || channels <= 0 ? 1 : (63 + channels) / channels; }

/// out[i] = v[i] of any floating type, repeated `copies` times.
template <class A>
void load(A* out, const View& v, Index copies, std::string_view op) {
  dispatch_float(v.dtype, op, [&](auto t) {
    auto from = v.as<const decltype(t)>();
    for (Index k = 0, n = v.numel(); k < copies; ++k)
      for (Index i = 0; i < n; ++i) *out++ = static_cast<A>(from[i]);
  });
}
/// v[i] (+)= from[i], where v has any floating type.
template <class A>
void store(const View& v, const A* from, bool accumulate, std::string_view op) {
  dispatch_float(v.dtype, op, [&](auto t) {
    using T = decltype(t);
    T* to = v.as<T>();
    for (Index i = 0, n = v.numel(); i < n; ++i) {
      A old = accumulate ? static_cast<A>(to[i]) : A{0};
      to[i] = static_cast<T>(static_cast<Accumulator<T>>(old + from[i]));
    }
  });
}

}  // namespace trireme
