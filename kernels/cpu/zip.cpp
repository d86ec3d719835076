// Binary formulas with NumPy broadcasting: kernel::Zip.
#include "kernels/cpu/vector.h"
#include "kernels/elementwise.h"
#include "kernels/kernel.h"
#include "kernels/pointwise.h"

namespace trireme {
namespace {

/// y's axes, innermost first, with neighbours merged where both operands allow it. Steps count elements; 0:
/// broadcast.
struct Walk {
  int rank = 0;
  Index extent[Shape::max_rank] = {}, step_a[Shape::max_rank] = {}, step_b[Shape::max_rank] = {};
};

Walk plan(const View& y, const View& a, const View& b, std::string_view op) {
  auto reaches = [&](const View& v) {
    bool ok = v.shape.rank() <= y.shape.rank() && v.dtype == y.dtype;
    for (int i = 1; ok && i <= v.shape.rank(); ++i) ok = v.shape[-i] == y.shape[-i] || v.shape[-i] == 1;
    return ok;
  };
  check(reaches(a) && reaches(b), op, "cannot broadcast {} {} and {} {} to {} {}", a.dtype, a.shape, b.dtype, b.shape,
        y.dtype, y.shape);
  Walk w;
  Index block_a = 1, block_b = 1;
  for (int i = 1; i <= y.shape.rank(); ++i) {
    Index n = y.shape[-i];
    Index na = i <= a.shape.rank() ? a.shape[-i] : 1, nb = i <= b.shape.rank() ? b.shape[-i] : 1;
    Index sa = na == 1 ? 0 : block_a, sb = nb == 1 ? 0 : block_b;
    block_a *= na, block_b *= nb;
    if (n == 1) continue;
    int k = w.rank - 1;
    if (k >= 0 && sa == w.step_a[k] * w.extent[k] && sb == w.step_b[k] * w.extent[k]) {
      w.extent[k] *= n;
      continue;
    }
    w.extent[w.rank] = n, w.step_a[w.rank] = sa, w.step_b[w.rank] = sb;
    ++w.rank;
  }
  if (w.rank == 0) w.rank = 1, w.extent[0] = 1;
  return w;
}

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
  Walk w = plan(y, a, b, F::name);
  bool short_a = short_rows(w, w.step_b, w.step_a), short_b = short_rows(w, w.step_a, w.step_b);
  dispatch_float(y.dtype, F::name, [&](auto t) {
    using T = decltype(t);
    sweep(y.numel(), 2, [=, to = y.as<T>(), p = a.as<const T>(), q = b.as<const T>()](Index begin, Index end) {
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
