// Checks of the operands of normalisation kernels, for all backends.
#pragma once
#include "kernels/plans/checks.h"
#include "kernels/plans/dispatch.h"

namespace trireme {

/// Throws Error naming op unless each operand has one number per channel of x, or is View{}.
inline void check_channels(std::initializer_list<const View*> all, const Shape& x, std::string_view op) {
  for (auto* v : all)
    check(!*v || v->numel() == row_width(x), op, "got {} numbers for the {} channels of {}", v->numel(), row_width(x),
          x);
}

/// Operands of BatchNormMerge. Throws Error naming op if types or shapes do not fit.
inline void check_merge(const View& mean, const View& m2, const View& count, const View& parts, std::string_view op) {
  const Index width = 1 + 2 * mean.numel();
  check(parts.dtype == DType::f64 && parts.shape.rank() == 2 && parts.shape[1] == width, op,
        "got parts {} {} for {} channels, expected f64 [ranks, {}]", parts.dtype, parts.shape, mean.numel(), width);
  check(count.dtype == DType::f64 && count.numel() == 1 && m2.numel() == mean.numel() && m2.dtype == mean.dtype &&
            (mean.dtype == DType::f32 || mean.dtype == DType::f64),
        op, "got count {} {}, mean {} {} and m2 {} {}: count is one f64, the others alike, f32 or f64", count.dtype,
        count.shape, mean.dtype, mean.shape, m2.dtype, m2.shape);
}

/// How the backward of batch norm gets dz, the gradient before a fused ReLU, from dy.
enum class ReluMask {
  none,   ///< there is no ReLU: dz = dy
  found,  ///< dy, or 0 where the ReLU's input, recomputed from x, is not positive
  read    ///< dy, or 0 where the output y is not positive
};
/// Calls f(std::integral_constant<ReluMask, ...>) for the operands of BatchNormBackwardReduce.
template <class F>
decltype(auto) dispatch_mask(const View& beta, const View& y, F&& f) {
  if (y) return f(std::integral_constant<ReluMask, ReluMask::read>{});
  return beta ? f(std::integral_constant<ReluMask, ReluMask::found>{})
              : f(std::integral_constant<ReluMask, ReluMask::none>{});
}

/// Operands of layer norm: statistics [rows] (f32, or f64 for f64), weights [C] or View{}. Throws Error naming op if
/// they do not fit.
inline void check_rows(std::initializer_list<const View*> statistics, std::initializer_list<const View*> weights,
                       const View& x, std::string_view op) {
  const DType expected = x.dtype == DType::f64 ? DType::f64 : DType::f32;
  for (auto* v : statistics)
    check(v->dtype == expected && v->numel() == row_count(x.shape), op, "got statistics {} {} for {} {}, expected {}",
          v->dtype, v->shape, x.dtype, x.shape, expected);
  for (auto* v : weights)
    check(!*v || v->numel() == row_width(x.shape), op, "got {} weights for {} channels", v->numel(),
          row_width(x.shape));
}

/// The extents of a group norm.
struct GroupShape {
  Index samples, cells, channels, groups;
  constexpr Index per_group() const { return channels / groups; }  ///< channels per group
};
/// Operands of group norm: statistics [N, G] and sums [N, C] (f32, or f64 for f64), weights [C] of that type or View{}.
/// Throws Error naming op if they do not fit.
inline GroupShape check_groups(std::initializer_list<const View*> statistics, std::initializer_list<const View*> sums,
                               std::initializer_list<const View*> weights, const View& x, std::string_view op) {
  const int rank = x.shape.rank();
  check(rank >= 2, op, "got {}, expected [N, cells..., C]", x.shape);
  const DType type = x.dtype == DType::f64 ? DType::f64 : DType::f32;
  const Shape& per_group = (*statistics.begin())->shape;
  const GroupShape s{x.shape[0], x.shape.product(1, rank - 1), x.shape[-1], per_group.rank() == 2 ? per_group[1] : 0};
  check(s.groups > 0 && s.channels % s.groups == 0, op, "got {} groups of {} channels: they must divide them", s.groups,
        s.channels);
  const auto expect = [&](const View& v, const Shape& shape) {
    check(v.dtype == type && v.shape == shape, op, "got {} {} for {} {}, expected {} {}", v.dtype, v.shape, x.dtype,
          x.shape, type, shape);
  };
  for (auto* v : statistics) expect(*v, {s.samples, s.groups});
  for (auto* v : sums) expect(*v, {s.samples, s.channels});
  for (auto* v : weights)
    if (*v) expect(*v, {s.channels});
  return s;
}

}  // namespace trireme
