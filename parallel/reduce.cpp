#include "parallel/reduce.h"

#include <cstring>

namespace trireme {
namespace {

constexpr Index lane = 2048;  // elements summed at a time: the partial sums stay in the first cache level

template <class T>
using Partial = std::conditional_t<is_narrow_type<T>, float, T>;

template <class F>
void with_op(ReduceOp op, F&& f) {
  switch (op) {
    case ReduceOp::sum: return f([](auto a, auto b) { return static_cast<decltype(a)>(a + b); });
    case ReduceOp::max: return f([](auto a, auto b) { return a < b ? b : a; });
    case ReduceOp::min: return f([](auto a, auto b) { return b < a ? b : a; });
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

}  // namespace trireme
