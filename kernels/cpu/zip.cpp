// Binary formulas with NumPy broadcasting: kernel::Zip.
#include "kernels/contracts/elementwise.h"
#include "kernels/core/kernel.h"
#include "kernels/cpu/vector.h"
#include "kernels/formulas/pointwise.h"
#include "kernels/plans/strided_loop.h"

namespace trireme {
namespace {

using BinaryLoop = detail::StridedLoop<2>;

template <class F, class T>
void segment(F formula, T* y, const T* a, Index step_a, const T* b, Index step_b, Index n) {
  using A = ComputeType<T>;
  auto f = [formula](T p, T q) { return formula.value(static_cast<A>(p), static_cast<A>(q)); };
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
    T v;
    put(v, f(*a, *b));
    std::fill_n(y, n, v);
  }
}

/// True when y is rows of few numbers, the one operand full and the other a single such row: a bias, or its
/// gradient.
bool short_rows(const BinaryLoop& loop, std::size_t full, std::size_t row) {
  return loop.rank == 2 && repeats(loop.extent[0]) > 1 && loop.step[0][full] == 1 &&
         loop.step[1][full] == loop.extent[0] && loop.step[0][row] == 1 && loop.step[1][row] == 0;
}

/// y[begin, end) in segments along which both operands step evenly. A short row is repeated until it is worth a vector
/// loop.
template <class F, class T>
void zip_range(F f, T* y, const T* a, const T* b, const BinaryLoop& loop, bool short_a, bool short_b, Index begin,
               Index end) {
  const bool tiled = short_a || short_b;
  T tile[128];
  Index length = loop.extent[0], at[Shape::max_rank];
  if (tiled) {
    const T* row = short_a ? a : b;
    length *= repeats(loop.extent[0]);
    for (Index i = 0, column = begin % loop.extent[0]; i < length; ++i) {
      tile[i] = row[column];
      if (++column == loop.extent[0]) column = 0;
    }
  }
  for (Index rest = begin, k = 0; k < loop.rank; ++k) {
    at[k] = rest % loop.extent[k];
    rest /= loop.extent[k];
  }
  while (begin < end) {
    const T *p = a, *q = b;
    Index step_a = 1, step_b = 1, n = std::min(end - begin, length);
    if (tiled) {
      p = short_a ? tile : a + begin;
      q = short_b ? tile : b + begin;
    } else {
      for (int k = 0; k < loop.rank; ++k) {
        p += at[k] * loop.step[k][0];
        q += at[k] * loop.step[k][1];
      }
      step_a = loop.step[0][0];
      step_b = loop.step[0][1];
      n = std::min(n, loop.extent[0] - at[0]);
      at[0] = 0;
      for (int k = 1; k < loop.rank && ++at[k] == loop.extent[k]; ++k) at[k] = 0;
    }
    segment(f, y + begin, p, step_a, q, step_b, n);
    begin += n;
  }
}

template <class F>
void zip(View y, View a, View b, F f) {
  const BinaryLoop loop = detail::plan_broadcast(y, a, b, F::name);
  bool short_a = short_rows(loop, 1, 0), short_b = short_rows(loop, 0, 1);
  const auto floats = [](DType t, std::string_view op, auto&& g) { return dispatch_float(t, op, g); };
  pointwise::dispatch<F>(y.dtype, floats, [&](auto t) {
    using T = decltype(t);
    sweep(y.numel(), 2, [=, &loop, to = y.as<T>(), p = a.as<const T>(), q = b.as<const T>()](Index begin, Index end) {
      zip_range(f, to, p, q, loop, short_a, short_b, begin, end);
    });
  });
}

template <class F>
struct CpuBinaryFormula {
  Kernel<kernel::Zip<F>> forward{DeviceKind::cpu, zip<F>};
};

const pointwise::EachBinary<CpuBinaryFormula> binary_formulas_cpu;

}  // namespace
}  // namespace trireme
