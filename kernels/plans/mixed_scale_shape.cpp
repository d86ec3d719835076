#include "kernels/plans/mixed_scale_shape.h"

namespace trireme {

MixedScaleShape mixed_scale_shape(const View& block, const MixedScaleOptions& o, std::string_view op) {
  const Shape& b = block.shape;
  check(b.rank() == 4 || b.rank() == 5, op, "the block is {}, expected [N, H, W, C] or [N, D, H, W, C]", b);
  check(is_float(block.dtype), op, "got {}, expected a floating type", block.dtype);
  check(o.channels >= 1 && o.outputs >= 1 && o.channels + o.outputs <= b[-1], op,
        "the layer reads {} channels and writes {} after them, but the block {} has {}", o.channels, o.outputs, b,
        b[-1]);
  check(o.dilation >= 1, op, "the dilation is {}, expected at least 1", o.dilation);
  MixedScaleShape s;
  s.n = b[0];
  s.channels = o.channels;
  s.outputs = o.outputs;
  s.dilation = o.dilation;
  s.width = b[-1];
  const int dims = b.rank() - 2;
  s.planes = dims == 3 ? 3 : 1;
  for (int d = 0; d < dims; ++d) {
    const auto from = static_cast<std::size_t>(d), to = static_cast<std::size_t>(3 - dims + d);
    s.extent[to] = b[d + 1];
    s.begin[to] = o.begin[from];
    s.size[to] = o.size[from] < 0 ? b[d + 1] - o.begin[from] : o.size[from];
    check(s.begin[to] >= 0 && s.size[to] >= 0 && s.begin[to] + s.size[to] <= b[d + 1], op,
          "the box begins at {} and has {} cells along spatial axis {} of {}", s.begin[to], s.size[to], d, b);
  }
  return s;
}

void check_mixed_scale_weights(const MixedScaleShape& s, const View& block, const View& w, const View& bias,
                               std::string_view op) {
  Shape expected{s.outputs};
  for (int d = 0; d < block.shape.rank() - 2; ++d) expected.push_back(3);
  expected.push_back(s.channels);
  check(w.shape == expected, op, "the filter is {}, expected {}", w.shape, expected);
  check(!bias || bias.shape == Shape{s.outputs}, op, "bias is {}, expected [{}]", bias.shape, s.outputs);
  const auto fits = [&](DType t) { return t == block.dtype || (is_half(block.dtype) && t == DType::f32); };
  check(fits(w.dtype) && (!bias || fits(bias.dtype)), op,
        "weights are {} and {} for a block of {}, expected its type or the type of its sums", w.dtype,
        bias ? bias.dtype : w.dtype, block.dtype);
}

void check_mixed_scale_input_gradient(const MixedScaleShape& s, const View& gradient, const View& w,
                                      std::string_view op) {
  check(!is_half(gradient.dtype), op, "the gradient is {}, expected f32 or f64", gradient.dtype);
  View block = gradient;
  if (is_half(w.dtype) && gradient.dtype == DType::f32) block.dtype = w.dtype;
  check_mixed_scale_weights(s, block, w, View{}, op);
}

void check_mixed_scale_gradient(const View& block, const View& gradient, std::string_view op) {
  const DType type = is_half(block.dtype) ? DType::f32 : block.dtype;
  check(gradient.shape == block.shape && gradient.dtype == type, op, "the gradient is {} {}, expected {} {}",
        gradient.dtype, gradient.shape, type, block.shape);
}

}  // namespace trireme
