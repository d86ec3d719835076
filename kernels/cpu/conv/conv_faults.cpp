#include "kernels/cpu/conv/conv_faults.h"

#include <algorithm>

#include "kernels/cpu/dnnl.h"
#include "kernels/cpu/vector.h"

namespace trireme::onednn {
namespace {

/// Whether an output along axis d reads padding only.
bool sees_only_padding(const ConvShape& s, int d) {
  const auto axis = static_cast<std::size_t>(d);
  if (s.options.pad_begin[axis] == 0 && s.options.pad_end[axis] == 0) return false;
  for (Index o = 0; o < s.out[axis]; ++o) {
    bool inside = false;
    for (Index f = 0; f < s.filter[axis] && !inside; ++f) inside = s.at(d, o, f) >= 0 && s.at(d, o, f) < s.in[axis];
    if (!inside) return true;
  }
  return false;
}

/// Whether, along axis d, an output up to the first whose window does not begin before the input has a window that ends
/// after it.
bool pads_meet(const ConvShape& s, int d) {
  const auto axis = static_cast<std::size_t>(d);
  const Index pad = s.options.pad_begin[axis], stride = s.options.stride[axis];
  if (pad <= 0) return false;
  const Index last = std::min((pad + stride - 1) / stride, s.out[axis] - 1);
  return s.at(d, last, s.filter[axis] - 1) >= s.in[axis];
}

}  // namespace

bool may_sum(const ConvShape& s) {
  if (s.options.groups > 1 && vector_level() == VectorLevel::base) return false;
  if (!old_version) return true;
  for (int d = 0; d < s.dims; ++d)
    if (sees_only_padding(s, d)) return false;
  return true;
}

bool forward_needs_padding(const ConvShape& s) {
  const auto last = static_cast<std::size_t>(s.dims - 1);
  const Index end = s.at(s.dims - 1, s.out[last] - 1, s.filter[last] - 1) + 1;  // of the cells that outputs read
  const Index beyond = end - s.in[last];
  return (beyond >= 4 && s.out[last] < 2 * beyond) || (end < s.in[last] && s.options.pad_begin[last] > 0);
}

bool may_use_amx(const ConvShape& s) {
  if (!old_version) return true;
  for (int d = 0; d + 1 < s.dims; ++d)
    if (sees_only_padding(s, d)) return false;
  return s.dims < 3;
}

bool gradient_needs_padding(const ConvShape& s) { return s.dims == 3 && (pads_meet(s, 0) || pads_meet(s, 1)); }

bool gradient_needs_dense(const ConvShape& s) {
  constexpr Index vector = 16;
  return s.filter_cells() == 1 && s.c_in % vector != 0 && s.options.stride != Extents{1, 1, 1};
}

bool gradient_needs_f32(const ConvShape& s, DType type) { return type == DType::bf16 && s.c_in == 1; }

}  // namespace trireme::onednn
