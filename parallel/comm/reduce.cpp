#include "parallel/comm/reduce.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace trireme {
namespace {

constexpr Index lane = 2048;  // elements summed at a time: the partial sums stay in the first cache level

template <class T>
using Partial = std::conditional_t<is_narrow_type<T>, float, T>;

/// The greater (or the lesser) of two values, by their order alone: the same bits whichever rank's value stands first.
/// NaN if either is; zeros by their sign (IEEE 754-2019: maximum and minimum).
template <bool greatest, class A>
A extreme(A a, A b) {
  if constexpr (std::is_floating_point_v<A>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<A>::quiet_NaN();
    if (a == b) return std::signbit(a) == greatest ? b : a;
  }
  return (a < b) == greatest ? b : a;
}

template <class F>
void with_op(ReduceOp op, F&& f) {
  switch (op) {
    case ReduceOp::average:
    case ReduceOp::sum: return f([](auto a, auto b) { return static_cast<decltype(a)>(a + b); });
    case ReduceOp::max: return f([](auto a, auto b) { return extreme<true>(a, b); });
    case ReduceOp::min: return f([](auto a, auto b) { return extreme<false>(a, b); });
  }
}

template <class T, class Op>
void fold(Partial<T>* sum, const T* from, Index count, Op op) {
  for (Index i = 0; i < count; ++i) sum[i] = op(sum[i], static_cast<Partial<T>>(from[i]));
}

template <class T, class Op>
void fold_all(std::span<void* const> outs, std::span<const void* const> ins, Index count, Op op) {
  Partial<T> sum[lane];
  for (Index at = 0; at < count; at += lane) {
    Index n = std::min(lane, count - at);
    auto* first = static_cast<const T*>(ins[0]) + at;
    for (Index i = 0; i < n; ++i) sum[i] = static_cast<Partial<T>>(first[i]);
    for (const void* in : ins.subspan(1)) fold(sum, static_cast<const T*>(in) + at, n, op);
    for (void* out : outs) {
      auto* to = static_cast<T*>(out) + at;
      for (Index i = 0; i < n; ++i) to[i] = static_cast<T>(sum[i]);
    }
  }
}

}  // namespace

void reduce_into(void* to, const void* from, Index count, DType t, ReduceOp op) {
  dispatch_any(t, [&]<class T>(T) {
    with_op(op, [&](auto f) {
      auto* a = static_cast<T*>(to);
      auto* b = static_cast<const T*>(from);
      for (Index i = 0; i < count; ++i)
        a[i] = static_cast<T>(f(static_cast<Partial<T>>(a[i]), static_cast<Partial<T>>(b[i])));
    });
  });
}

void reduce_all(std::span<void* const> outs, std::span<const void* const> ins, Index count, DType t, ReduceOp op) {
  dispatch_any(t, [&]<class T>(T) { with_op(op, [&](auto f) { fold_all<T>(outs, ins, count, f); }); });
}

void divide(void* x, Index count, DType t, int by) {
  dispatch_any(t, [&]<class T>(T) {
    auto* at = static_cast<T*>(x);
    for (Index i = 0; i < count; ++i)
      at[i] = static_cast<T>(static_cast<Partial<T>>(at[i]) / static_cast<Partial<T>>(by));
  });
}

}  // namespace trireme
