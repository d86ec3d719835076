#include "parallel/comm/reduce.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/vector.h"

namespace trireme {
namespace {

constexpr Index lane = 2048;  // elements summed at a time, so that partial sums stay in the L1 cache

template <class T>
using Partial = std::conditional_t<is_narrow_type<T>, float, T>;

/// The greater (or the lesser) of two values. The bits do not depend on the order of the operands. NaN if either is
/// NaN; zeros are ordered by sign (IEEE 754-2019: maximum and minimum).
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

/// Runs f(i) for i in [0, n) as vector code of this machine's width.
template <class F>
void each(Index n, F f) {
  vectorised([n, f] {
#pragma omp simd
    for (Index i = 0; i < n; ++i) f(i);
  });
}

/// to = op(a, b), element by element.
template <class T, class A, class B, class Op>
void combine(T* to, const A* a, const B* b, Index n, Op op) {
  using P = Partial<A>;
  each(n, [=](Index i) { to[i] = static_cast<T>(op(static_cast<P>(a[i]), static_cast<P>(b[i]))); });
}

// For at least one block. An out that is one of the ins is written after its elements were read.
template <class T, class Op>
void fold_all(std::span<void* const> outs, std::span<const void* const> ins, Index count, Op op) {
  Partial<T> sum[lane];
  for (Index at = 0; at < count; at += lane) {
    const Index n = std::min(lane, count - at);
    const auto in = [&](std::size_t i) { return static_cast<const T*>(ins[i]) + at; };
    T* const out = static_cast<T*>(outs[0]) + at;
    const std::size_t last = ins.size() - 1;
    if (last > 1) combine(sum, in(0), in(1), n, op);
    for (std::size_t i = 2; i < last; ++i) combine(sum, sum, in(i), n, op);
    if (last == 1) combine(out, in(0), in(1), n, op);
    if (last > 1) combine(out, sum, in(last), n, op);
    for (void* other : outs.subspan(last == 0 ? 0 : 1))
      std::memmove(static_cast<T*>(other) + at, last == 0 ? in(0) : out, n * sizeof(T));
  }
}

}  // namespace

void reduce_into(void* to, const void* from, Index count, DType t, ReduceOp op) {
  dispatch_any(t, [&]<class T>(T) {
    with_op(op,
            [&](auto f) { combine(static_cast<T*>(to), static_cast<T*>(to), static_cast<const T*>(from), count, f); });
  });
}

void reduce_all(std::span<void* const> outs, std::span<const void* const> ins, Index count, DType t, ReduceOp op) {
  dispatch_any(t, [&]<class T>(T) { with_op(op, [&](auto f) { fold_all<T>(outs, ins, count, f); }); });
}

void divide(void* x, Index count, DType t, int by) {
  dispatch_any(t, [&]<class T>(T) {
    each(count, [at = static_cast<T*>(x), by](Index i) {
      at[i] = static_cast<T>(static_cast<Partial<T>>(at[i]) / static_cast<Partial<T>>(by));
    });
  });
}

}  // namespace trireme
