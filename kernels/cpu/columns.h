// Sums of the columns of a [rows, width] matrix, for reductions over all axes but the last. Rows are cut into parts
// that depend on the shape only, and parts are added in order, so the result does not depend on the number of threads.
#pragma once
#include "kernels/cpu/vector.h"

namespace trireme {

constexpr Index column_block = 64;  ///< rows that are summed in the element's type before the sum continues in f64

/// Number of parts for rows x width numbers.
constexpr Index column_parts(Index rows, Index width) {
  return std::clamp<Index>(std::min(rows * width / 16384, rows / column_block), 1, 64);
}

/// Sums sets of `width` columns in f64. body(acc, begin, end) adds rows [begin, end), at most column_block rows, to
/// acc[sets * width] (zero on entry). It is inlined into vector code, so it must capture by value. The result, sets *
/// width numbers, is in scratch slot 0 of this thread.
template <class A, class F>
double* column_sums(Index sets, Index rows, Index width, F body) {
  Index n = sets * width, parts = column_parts(rows, width);
  double* sums = scratch<double>(parts * n, 0);
  parallel_for(parts, rows * n / parts, [=](Index from, Index to) {
    A* acc = scratch<A>(n, 3);
    for (Index part = from; part < to; ++part)
      vectorised([=] {
        double* sum = sums + part * n;
        std::fill_n(sum, n, 0.0);
        for (Index r = rows * part / parts, last = rows * (part + 1) / parts; r < last; r += column_block) {
          std::fill_n(acc, n, A{});
          body(acc, r, std::min(r + column_block, last));
#pragma omp simd
          for (Index i = 0; i < n; ++i) sum[i] += acc[i];
        }
      });
  });
  for (Index part = 1; part < parts; ++part)
    for (Index i = 0; i < n; ++i) sums[i] += sums[part * n + i];
  return sums;
}

/// out[c] (+)= sum over k of sums[k * channels + c]: the end of a sum over rows that were processed `copies` at a time.
inline void fold(double* sums, Index channels, Index copies) {
  for (Index k = 1; k < copies; ++k)
    for (Index c = 0; c < channels; ++c) sums[c] += sums[k * channels + c];
}

}  // namespace trireme
