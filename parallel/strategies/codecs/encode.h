// What codecs share: error feedback, random numbers, and dispatch on the dtype of gradients.
#pragma once
#include "kernels/core/random.h"
#include "kernels/cpu/vector.h"
#include "parallel/plan/codec.h"

namespace trireme::detail {

/// Calls f(T{}) with the type of the numbers, f32 or f64.
template <class F>
void with_type(const Tensor& numbers, F&& f) {
  numbers.dtype() == DType::f64 ? f(double{}) : f(float{});
}
/// The numbers of the codec's i-th state [size]; null: the action does not use the state.
template <class T>
T* state(const CodecContext& now, std::size_t i) {
  return now.states[i] ? now.states[i].data<T>() : nullptr;
}

/// Error feedback: adds the gradients `numbers` to the residual of earlier steps, which is the codec's first state.
/// Returns the sum [size], which the codec encodes; there it stores the part that it did not send. Without a residual
/// the result is `numbers`.
template <class T>
T* with_residual(const CodecContext& now, const Tensor& numbers) {
  T *const g = numbers.data<T>(), *const residual = state<T>(now, 0);
  if (residual == nullptr) return g;
  vectorised([g, residual, n = now.size] {
#pragma omp simd
    for (Index i = 0; i < n; ++i) residual[i] += g[i];
  });
  return residual;
}

/// A random generator that depends on the seed, the step and the slice. own: and on the rank; false: equal on all
/// ranks.
inline Philox random(const CodecContext& now, bool own) {
  const auto word = [](auto v) { return static_cast<std::uint64_t>(v); };
  const std::uint64_t key = mix(mix(word(now.argument("seed")), word(now.step)), word(now.action.slice.begin));
  return {own ? mix(key, word(now.rank) + 1) : key};
}

}  // namespace trireme::detail
