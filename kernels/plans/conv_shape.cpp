// Checks of the operands of convolutions, the same for all backends.
#include "kernels/plans/conv_shape.h"

#include "kernels/plans/checks.h"

namespace trireme {

ConvShape conv_shape(const View& x, const View& w, const View& y, const ConvOptions& o, std::string_view op) {
  int rank = x.shape.rank();
  check(rank >= 3 && rank <= 5, op, "input is {}: expected N, 1 to 3 spatial axes, C", x.shape);
  check(w.shape.rank() == rank, op, "filter is {}, expected {} axes like the input {}", w.shape, rank, x.shape);
  ConvShape s;
  s.dims = rank - 2, s.n = x.shape[0], s.c_in = x.shape[-1], s.c_out = w.shape[0], s.options = o;
  check(o.groups >= 1 && s.c_out % o.groups == 0 && s.c_in % o.groups == 0, op,
        "{} groups do not divide {} input and {} output channels", o.groups, s.c_in, s.c_out);
  check(s.group_in() == w.shape[-1], op, "input has {} channels, the filter expects {}", s.c_in,
        w.shape[-1] * o.groups);
  // Options may say something about axes that are not there.
  for (std::size_t d = s.dims; d < 3; ++d)
    s.options.stride[d] = s.options.dilation[d] = 1, s.options.pad_begin[d] = s.options.pad_end[d] = 0;
  Shape expected{s.n};
  for (int d = 0; d < s.dims; ++d) {
    check(o.stride[d] >= 1 && o.dilation[d] >= 1, op, "stride {} and dilation {} must be at least 1", o.stride[d],
          o.dilation[d]);
    s.in[d] = x.shape[d + 1], s.filter[d] = w.shape[d + 1];
    Index room = s.in[d] + o.pad_begin[d] + o.pad_end[d] - (s.filter[d] - 1) * o.dilation[d] - 1;
    check(room >= 0 && s.filter[d] >= 1, op, "input {} with its padding is smaller than the dilated filter {}", x.shape,
          w.shape);
    s.out[d] = room / o.stride[d] + 1;
    expected.push_back(s.out[d]);
  }
  expected.push_back(s.c_out);
  check(y.shape == expected, op, "output is {}, expected {}", y.shape, expected);
  return s;
}

namespace {

void check_types(std::string_view op, const View& a, const View& b, const View& c) {
  bool same = is_float(a.dtype) && a.dtype == b.dtype && a.dtype == c.dtype;
  check(same, op, "operands of one floating type are expected, got {}, {}, {}", a.dtype, b.dtype, c.dtype);
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
        "operands of one floating type are expected, got {}, {}, {}", dw.dtype, x.dtype, dy.dtype);
  check(!dbias || (dbias.dtype == dw.dtype && dbias.shape == Shape{s.c_out}), op,
        "bias gradient is {} {}, expected {} [{}]", dbias.dtype, dbias.shape, dw.dtype, s.c_out);
  return s;
}

}  // namespace trireme
