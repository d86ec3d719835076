// How the light CPU kernels become vector code: loops written plainly, compiled once per vector width of
// x86-64 and chosen at run time, so that one binary uses what the machine has. Also the helpers that all of
// them share.
#pragma once
#include <vector>

#include "kernels/cpu/parallel.h"
#include "kernels/plans/checks.h"

namespace trireme {

/// x86-64's micro-architecture levels: v3 has AVX2 and FMA, v4 AVX-512 (F, BW, CD, DQ, VL).
enum class VectorLevel { base, v3, v4 };
namespace detail {
/// The highest level that both the CPU and oneDNN's limit ONEDNN_MAX_CPU_ISA allow: AVX2 for v3, AVX512_CORE for v4.
VectorLevel find_vector_level();
}  // namespace detail
/// The level of this process, found at the first call.
inline VectorLevel vector_level() {
  static const VectorLevel level = detail::find_vector_level();
  return level;
}

namespace detail {
template <class F>
[[gnu::target("arch=x86-64-v4,prefer-vector-width=512"), gnu::flatten, gnu::noinline]] void run_v4(const F& f) {
  f();
}
template <class F>
[[gnu::target("arch=x86-64-v3"), gnu::flatten, gnu::noinline]] void run_v3(const F& f) {
  f();
}
// Machines without AVX2 get plain code: a third level of vector code would cost a quarter of the time to compile.
template <class F>
[[gnu::optimize("O1"), gnu::flatten, gnu::noinline]] void run_base(const F& f) {
  f();
}
}  // namespace detail

/// Calls f(), inlined whole into code for the widest vectors at hand. f should capture by value, so that the
/// compiler sees that its pointers do not change.
template <class F>
void vectorised(const F& f) {
  switch (vector_level()) {
    case VectorLevel::v4: return detail::run_v4(f);
    case VectorLevel::v3: return detail::run_v3(f);
    case VectorLevel::base: return detail::run_base(f);
  }
}

/// to = value rounded to T. Inside `omp simd` a bf16 temporary in the loop's own body would keep it from
/// vector code.
template <class T>
void put(T& to, std::type_identity_t<ComputeType<T>> value) {
  to = static_cast<T>(value);
}

/// f(begin, end) over [0, n) as parallel_for does, each chunk vectorised. f captures by value and does not
/// throw.
template <class F>
void sweep(Index n, Index cost, F f) {
  parallel_for(n, cost, [&f](Index begin, Index end) { vectorised([f, begin, end] { f(begin, end); }); });
}

/// A block of this thread's own that is reused from call to call (contents undefined); slot tells apart
/// blocks that live at the same time.
template <class T>
T* scratch(Index count, int slot) {
  thread_local std::vector<double> blocks[4];
  auto words = static_cast<std::size_t>(count) * sizeof(T) / sizeof(double) + 1;
  if (blocks[slot].size() < words) blocks[slot].resize(words);
  return reinterpret_cast<T*>(blocks[slot].data());
}

/// How often to repeat a row of channels so that it is worth a vector loop: rows of few channels are walked
/// as fewer, wider ones.
constexpr Index repeats(Index channels) { return channels >= 64 || channels <= 0 ? 1 : (63 + channels) / channels; }

/// out[i] = v[i] of any floating type; copies more follow one another.
template <class A>
void load(A* out, const View& v, Index copies, std::string_view op) {
  dispatch_float(v.dtype, op, [&](auto t) {
    auto from = v.as<const decltype(t)>();
    for (Index k = 0, n = v.numel(); k < copies; ++k)
      for (Index i = 0; i < n; ++i) *out++ = static_cast<A>(from[i]);
  });
}
/// v[i] (+)= from[i], v of any floating type.
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
