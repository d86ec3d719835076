// What the normalisation kernels of all backends ask of their operands.
#pragma once
#include "kernels/checks.h"

namespace trireme {

inline void check_channels(std::initializer_list<const View*> all, const Shape& x, std::string_view op) {
  for (auto* v : all)
    check(!*v || v->numel() == row_width(x), op, "got {} numbers for the {} channels of {}", v->numel(), row_width(x),
          x);
}

/// Layer norm: statistics of rows, weights of channels.
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

}  // namespace trireme
