// The input cells and weights of an output cell of kernel::Resample along one axis; for host and devices.
#pragma once
#include "kernels/contracts/pool.h"

namespace trireme {

/// Input cells [first, first + count), with the weight of the first cell and the weight of each other cell.
struct ResampleTaps {
  Index first, count;
  double share, other;
  constexpr double share_of(Index i) const { return i < first || i >= first + count ? 0 : i == first ? share : other; }
};

/// Input cells per output cell.
constexpr double resample_step(const ResampleAxis& a) {
  if (a.mode == ResampleMode::area) return static_cast<double>(a.in) / static_cast<double>(a.out);
  if (a.mode == ResampleMode::nearest || !a.align_corners) return a.step;
  return a.out > 1 ? static_cast<double>(a.in - 1) / static_cast<double>(a.out - 1) : 0;
}
/// The taps of output cell o, by PyTorch's rules: nearest rounds in f32; linear clamps at the edges.
constexpr ResampleTaps resample_taps(const ResampleAxis& a, Index o) {
  if (a.mode == ResampleMode::area) {
    const Index first = o * a.in / a.out, count = ((o + 1) * a.in + a.out - 1) / a.out - first;
    return {first, count, 1.0 / static_cast<double>(count), 1.0 / static_cast<double>(count)};
  }
  if (a.mode == ResampleMode::nearest) {
    const auto at = static_cast<Index>(static_cast<float>(o) * static_cast<float>(a.step));
    return {at < a.in ? at : a.in - 1, 1, 1, 0};
  }
  const double step = resample_step(a), shift = a.align_corners ? 0 : 0.5;
  const double point = step * (static_cast<double>(o) + shift) - shift;
  const auto first = point > 0 ? static_cast<Index>(point) : 0;
  if (first >= a.in - 1) return {a.in - 1, 1, 1, 0};
  const double other = point > 0 ? point - static_cast<double>(first) : 0;
  return {first, other > 0 ? 2 : 1, 1 - other, other};
}
/// A lower bound (inclusive) of the output cells that read input cell i, for i <= in.
constexpr Index first_resampled(const ResampleAxis& a, Index i) {
  const double step = resample_step(a), at = step > 0 ? (static_cast<double>(i) - 1.5) / step - 2 : 0;
  if (i <= 1 || at <= 0) return 0;
  return at < static_cast<double>(a.out) ? static_cast<Index>(at) : a.out;
}
/// An upper bound (exclusive) of the output cells that read input cell i.
constexpr Index last_resampled(const ResampleAxis& a, Index i) {
  const double step = resample_step(a), at = step > 0 ? (static_cast<double>(i) + 1.5) / step + 3 : 0;
  if (i >= a.in - 1 || !(step > 0)) return a.out;
  return at < static_cast<double>(a.out) ? static_cast<Index>(at) : a.out;
}

/// The extents of one resampling. Axes are aligned to the end; absent ones have extent 1.
struct ResampleShape {
  Index n = 0, channels = 0;
  ResampleAxes axis;
};
/// Throws Error naming op unless y [N, out..., C] and x [N, in..., C] have the same floating type and fit the axes.
inline ResampleShape resample_shape(const View& y, const View& x, const ResampleAxes& axes, std::string_view op) {
  const int rank = x.shape.rank(), spatial = rank - 2;
  check(rank >= 3 && rank <= 5 && y.shape.rank() == rank && y.shape[0] == x.shape[0] && y.shape[-1] == x.shape[-1], op,
        "got {} for {}, expected [N, spatial..., C] with 1 to 3 spatial axes", y.shape, x.shape);
  check(is_float(x.dtype) && x.dtype == y.dtype, op, "input is {} and output {}, expected the same floating type",
        x.dtype, y.dtype);
  ResampleShape s{.n = x.shape[0], .channels = x.shape[-1], .axis = {}};
  for (int d = 0; d < spatial; ++d) {
    const ResampleAxis& a = axes[static_cast<std::size_t>(d)];
    check(a.in == x.shape[d + 1] && a.out == y.shape[d + 1] && a.in > 0 && a.out > 0, op,
          "spatial axis {} is resampled from {} to {} cells, but the tensors have {} and {}", d, a.in, a.out,
          x.shape[d + 1], y.shape[d + 1]);
    s.axis[static_cast<std::size_t>(3 - spatial + d)] = a;
  }
  return s;
}

}  // namespace trireme
