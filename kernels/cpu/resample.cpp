// Resample: each axis is a sparse matrix. A row of the output is made of few rows of the input, joined in one row that
// stays in the cache, along which the innermost axis is resampled. Backward is the same with the matrices transposed.
#include <cstring>

#include "kernels/core/kernel.h"
#include "kernels/cpu/vector.h"
#include "kernels/plans/resample_taps.h"

namespace trireme {
namespace {

/// Row r of the matrix is weight[i] at column id[i], i in [begin[r], begin[r + 1]).
template <class A>
struct Sparse {
  Index rows = 0, columns = 0;
  std::vector<Index> begin, id;
  std::vector<A> weight;

  Sparse(const ResampleAxis& a, bool transposed) : rows(transposed ? a.in : a.out), columns(transposed ? a.out : a.in) {
    std::vector<std::vector<std::pair<Index, double>>> of(static_cast<std::size_t>(rows));
    for (Index o = 0; o < a.out; ++o) {
      const ResampleTaps t = resample_taps(a, o);
      for (Index i = t.first; i < t.first + t.count; ++i)
        of[static_cast<std::size_t>(transposed ? i : o)].emplace_back(transposed ? o : i, t.share_of(i));
    }
    begin.push_back(0);
    for (const auto& row : of) {
      for (const auto& [column, share] : row) {
        id.push_back(column);
        weight.push_back(static_cast<A>(share));
      }
      begin.push_back(static_cast<Index>(id.size()));
    }
  }
};

/// One axis for loops: pointers that a capture may copy.
template <class A>
struct ResampledRows {
  explicit ResampledRows(const Sparse<A>& s)
      : rows(s.rows), columns(s.columns), begin(s.begin.data()), id(s.id.data()), weight(s.weight.data()) {}
  Index rows, columns;
  const Index *begin, *id;
  const A* weight;
};

template <class A, class T>
void weigh(A* to, const T* from, A by, Index n, bool first) {
  if (first) {
#pragma omp simd
    for (Index i = 0; i < n; ++i) to[i] = by * static_cast<A>(from[i]);
  } else {
#pragma omp simd
    for (Index i = 0; i < n; ++i) to[i] += by * static_cast<A>(from[i]);
  }
}

/// y[r] = the weighted sum of cells of `line`, for each cell r of the innermost axis.
template <class T, class S, class A>
void along_line(T* y, const S* line, const ResampledRows<A>& axis, Index c, A* sum) {
  for (Index r = 0; r < axis.rows; ++r, y += c) {
    const Index first = axis.begin[r], count = axis.begin[r + 1] - first;
    const S* p = line + (count > 0 ? axis.id[first] * c : 0);
    const A by = count > 0 ? axis.weight[first] : A{};
    if (count <= 1) {
#pragma omp simd
      for (Index i = 0; i < c; ++i) put(y[i], count > 0 ? by * static_cast<A>(p[i]) : A{});
    } else if (count == 2) {
      const S* q = line + axis.id[first + 1] * c;
      const A other = axis.weight[first + 1];
#pragma omp simd
      for (Index i = 0; i < c; ++i) put(y[i], by * static_cast<A>(p[i]) + other * static_cast<A>(q[i]));
    } else {
      weigh(sum, p, by, c, true);
      for (Index k = first + 1; k < first + count; ++k) weigh(sum, line + axis.id[k] * c, axis.weight[k], c, false);
#pragma omp simd
      for (Index i = 0; i < c; ++i) put(y[i], sum[i]);
    }
  }
}

template <class T>
void resample_as(T* y, const T* x, const ResampleShape& s, bool transposed) {
  using A = Accumulator<T>;
  const Sparse<A> outer(s.axis[0], transposed), middle(s.axis[1], transposed), inner(s.axis[2], transposed);
  const ResampledRows<A> d(outer), h(middle), w(inner);
  const Index c = s.channels, in_line = w.columns * c, out_line = w.rows * c;
  parallel_for(s.n * d.rows * h.rows, (in_line + out_line) * 2, [=](Index begin, Index end) {
    A* line = scratch<A>(in_line + c, 3);
    vectorised([=] {
      for (Index item = begin; item < end; ++item) {
        const Index plane = item / h.rows, n = plane / d.rows, row = item % h.rows, slab = plane % d.rows;
        T* to = y + item * out_line;
        const auto at = [=](Index i, Index j) {
          return x + ((n * d.columns + d.id[i]) * h.columns + h.id[j]) * in_line;
        };
        const Index i0 = d.begin[slab], i1 = d.begin[slab + 1], j0 = h.begin[row], j1 = h.begin[row + 1];
        if (i1 - i0 == 1 && j1 - j0 == 1 && d.weight[i0] * h.weight[j0] == A{1}) {
          along_line(to, at(i0, j0), w, c, line);
          continue;
        }
        bool first = true;
        for (Index i = i0; i < i1; ++i)
          for (Index j = j0; j < j1; ++j) {
            weigh(line, at(i, j), d.weight[i] * h.weight[j], in_line, first);
            first = false;
          }
        if (first) std::fill_n(line, in_line, A{});
        along_line(to, line, w, c, line + in_line);
      }
    });
  });
}

void resample(View y, View x, const ResampleAxes& axes) {
  const ResampleShape s = resample_shape(y, x, axes, kernel::Resample::name);
  dispatch_float(x.dtype, kernel::Resample::name, [&](auto t) {
    using T = decltype(t);
    resample_as(y.as<T>(), x.as<const T>(), s, false);
  });
}
void resample_backward(View dx, View dy, const ResampleAxes& axes) {
  const ResampleShape s = resample_shape(dy, dx, axes, kernel::ResampleBackward::name);
  dispatch_float(dx.dtype, kernel::ResampleBackward::name, [&](auto t) {
    using T = decltype(t);
    resample_as(dx.as<T>(), dy.as<const T>(), s, true);
  });
}

const Kernel<kernel::Resample> resample_cpu{DeviceKind::cpu, resample};
const Kernel<kernel::ResampleBackward> resample_backward_cpu{DeviceKind::cpu, resample_backward};

}  // namespace
}  // namespace trireme
