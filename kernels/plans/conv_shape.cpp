// Checks of the operands of convolutions, the same for all backends.
#include "kernels/plans/conv_shape.h"

#include "kernels/plans/checks.h"

namespace trireme {

Shape conv_output_shape(const Shape& x, const Shape& w, const ConvOptions& o, std::string_view op) {
  check(x.rank() >= 3 && x.rank() <= 5 && w.rank() == x.rank(), op,
        "input {} and filter {}: expected [N, spatial..., I] and [O, spatial..., I/groups] with 1 to 3 spatial axes", x,
        w);
  check(o.groups >= 1 && w[0] % o.groups == 0, op, "{} filters do not divide into {} groups", w[0], o.groups);
  check(
      x[-1] == w[-1] * o.groups, op, "input has {} channels, the filter expects {}{}", x[-1], w[-1] * o.groups,
      x[1] == w[-1] * o.groups ? ": channels are the last axis here ([N, H, W, C]), not the second; permute() it" : "");
  Shape y{x[0]};
  for (int axis = 1; axis < x.rank() - 1; ++axis) {
    const auto s = static_cast<std::size_t>(axis - 1);
    check(o.stride[s] >= 1 && o.dilation[s] >= 1, op, "stride {} and dilation {} must be at least 1", o.stride[s],
          o.dilation[s]);
    check(o.pad_begin[s] >= 0 && o.pad_end[s] >= 0, op, "padding {} and {} must not be negative", o.pad_begin[s],
          o.pad_end[s]);
    const Index padded = x[axis] + o.pad_begin[s] + o.pad_end[s], reach = o.dilation[s] * (w[axis] - 1) + 1;
    check(padded >= reach && w[axis] >= 1, op,
          "input {} is too small for the filter {}: {} with padding, {} needed on spatial axis {}", x, w, padded, reach,
          s);
    y.push_back((padded - reach) / o.stride[s] + 1);
  }
  y.push_back(w[0]);
  return y;
}

ConvShape conv_shape(const View& x, const View& w, const View& y, const ConvOptions& o, std::string_view op) {
  const Shape expected = conv_output_shape(x.shape, w.shape, o, op);
  check(y.shape == expected, op, "output is {}, expected {}", y.shape, expected);
  ConvShape s;
  s.dims = x.shape.rank() - 2;
  s.n = x.shape[0];
  s.c_in = x.shape[-1];
  s.c_out = w.shape[0];
  s.options = o;
  for (int d = 0; d < s.dims; ++d) {
    s.in[d] = x.shape[d + 1];
    s.filter[d] = w.shape[d + 1];
    s.out[d] = expected[d + 1];
  }
  // Options may say something about axes that are not there.
  for (std::size_t d = s.dims; d < 3; ++d) {
    s.options.stride[d] = s.options.dilation[d] = 1;
    s.options.pad_begin[d] = s.options.pad_end[d] = 0;
  }
  return s;
}

namespace {

void check_types(std::string_view op, const View& a, const View& b, const View& c) {
  bool same = is_float(a.dtype) && a.dtype == b.dtype && a.dtype == c.dtype;
  check(same, op, "got {}, {} and {}, expected the same floating type", a.dtype, b.dtype, c.dtype);
}

}  // namespace

ConvShape conv_forward_shape(const View& y, const View& x, const View& w, const View& bias, const View& residual,
                             const ConvOptions& o) {
  constexpr auto op = kernel::Conv::name;
  ConvShape s = conv_shape(x, w, y, o, op);
  check_types(op, y, x, w);
  check(!bias || bias.shape == Shape{s.c_out}, op, "bias is {}, expected [{}]", bias.shape, s.c_out);
  check(!bias || bias.dtype == y.dtype || (is_half(y.dtype) && bias.dtype == DType::f32), op,
        "bias is {}, the output {}", bias.dtype, y.dtype);
  if (residual) check_same(y, residual, op);
  return s;
}

ConvShape conv_backward_input_shape(const View& dx, const View& dy, const View& w, const ConvOptions& o) {
  constexpr auto op = kernel::ConvBackwardInput::name;
  ConvShape s = conv_shape(dx, w, dy, o, op);
  check_types(op, dx, dy, w);
  return s;
}

ConvShape conv_backward_weight_shape(const View& dw, const View& dbias, const View& x, const View& dy,
                                     const ConvOptions& o) {
  constexpr auto op = kernel::ConvBackwardWeight::name;
  ConvShape s = conv_shape(x, dw, dy, o, op);
  const bool wider = is_half(x.dtype) && dw.dtype == DType::f32;
  check(is_float(x.dtype) && x.dtype == dy.dtype && (dw.dtype == x.dtype || wider), op,
        "got {}, {} and {}, expected the same floating type", dw.dtype, x.dtype, dy.dtype);
  check(!dbias || (dbias.dtype == dw.dtype && dbias.shape == Shape{s.c_out}), op,
        "bias gradient is {} {}, expected {} [{}]", dbias.dtype, dbias.shape, dw.dtype, s.c_out);
  return s;
}

}  // namespace trireme
