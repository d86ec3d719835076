// Binary formulas with NumPy broadcasting: kernel::Zip.
#include "kernels/contracts/elementwise.h"
#include "kernels/core/kernel.h"
#include "kernels/cpu/vector.h"
#include "kernels/formulas/pointwise.h"
#include "kernels/plans/broadcast.h"

namespace trireme {
namespace {

template <class F, class T>
void segment(T* y, const T* a, Index step_a, const T* b, Index step_b, Index n) {
  using A = Accumulator<T>;
  auto f = [](T p, T q) { return F::value(static_cast<A>(p), static_cast<A>(q)); };
  if (step_a == 1 && step_b == 1) {
#pragma omp simd
    for (Index i = 0; i < n; ++i) put(y[i], f(a[i], b[i]));
  } else if (step_a == 1) {
    T q = *b;
#pragma omp simd
    for (Index i = 0; i < n; ++i) put(y[i], f(a[i], q));
  } else if (step_b == 1) {
    T p = *a;
#pragma omp simd
    for (Index i = 0; i < n; ++i) put(y[i], f(p, b[i]));
  } else {
    std::fill_n(y, n, static_cast<T>(f(*a, *b)));
  }
}

/// True when y is rows of few numbers, the one operand full and the other a single such row: a bias, or its
/// gradient.
bool short_rows(const Walk& w, const Index* full, const Index* row) {
  return w.rank == 2 && repeats(w.extent[0]) > 1 && full[0] == 1 && full[1] == w.extent[0] && row[0] == 1 &&
         row[1] == 0;
}

/// y[begin, end) in stretches along which both operands step evenly. A short row is repeated until it is worth a vector
/// loop.
template <class F, class T>
void walk(T* y, const T* a, const T* b, const Walk& w, bool short_a, bool short_b, Index begin, Index end) {
  const bool tiled = short_a || short_b;
  T tile[128];
  Index length = w.extent[0], at[Shape::max_rank];
  if (tiled) {
    const T* row = short_a ? a : b;
    length *= repeats(w.extent[0]);
    for (Index i = 0, column = begin % w.extent[0]; i < length; ++i) {
      tile[i] = row[column];
      if (++column == w.extent[0]) column = 0;
    }
  }
  for (Index rest = begin, k = 0; k < w.rank; ++k) at[k] = rest % w.extent[k], rest /= w.extent[k];
  while (begin < end) {
    const T *p = a, *q = b;
    Index step_a = 1, step_b = 1, n = std::min(end - begin, length);
    if (tiled) {
      p = short_a ? tile : a + begin, q = short_b ? tile : b + begin;
    } else {
      for (int k = 0; k < w.rank; ++k) p += at[k] * w.step_a[k], q += at[k] * w.step_b[k];
      step_a = w.step_a[0], step_b = w.step_b[0], n = std::min(n, w.extent[0] - at[0]);
      at[0] = 0;
      for (int k = 1; k < w.rank && ++at[k] == w.extent[k]; ++k) at[k] = 0;
    }
    segment<F>(y + begin, p, step_a, q, step_b, n);
    begin += n;
  }
}

template <class F>
void zip(View y, View a, View b) {
  const Walk w = plan_walk(y, a, b, F::name);
  bool short_a = short_rows(w, w.step_b, w.step_a), short_b = short_rows(w, w.step_a, w.step_b);
  dispatch_float(y.dtype, F::name, [&](auto t) {
    using T = decltype(t);
    sweep(y.numel(), 2, [=, &w, to = y.as<T>(), p = a.as<const T>(), q = b.as<const T>()](Index begin, Index end) {
      walk<F>(to, p, q, w, short_a, short_b, begin, end);
    });
  });
}

template <class F>
struct Binary {
  Kernel<kernel::Zip<F>> forward{DeviceKind::cpu, zip<F>};
};

const Binary<pointwise::Add> add;
const Binary<pointwise::Sub> sub;
const Binary<pointwise::Mul> mul;
const Binary<pointwise::Div> div;
const Binary<pointwise::Maximum> maximum;
const Binary<pointwise::Minimum> minimum;
const Binary<pointwise::MaximumShare> maximum_share;
const Binary<pointwise::MinimumShare> minimum_share;

}  // namespace
}  // namespace trireme
