// Convolution over 1 to 3 spatial axes.
#include "framework/ops/help.h"
#include "framework/ops/ops.h"
#include "framework/ops/place.h"
#include "kernels/formulas/pointwise.h"
#include "kernels/plans/conv_shape.h"

namespace trireme {
namespace {

/// Images cut along s: Dryden et al., arXiv 1903.06681; filters along o and i: their paper of SC 2019.
constexpr ops::OpRule conv_rule{
    .op = "conv", .dims = "n s.. i, o k.. i, o -> n s.. o", .sums = "i", .windows = "s", .late = 2};
constexpr ops::OpRule grouped_rule{
    .op = "conv", .dims = "n s.. (g i), (g o) k.. i, (g o) -> n s.. (g o)", .windows = "s", .late = 2};
constexpr ops::OpRule transposed_rule{
    .op = "conv_transpose", .dims = "n s.. i, i k.. o, o -> n s.. o", .sums = "i", .windows = "s", .late = 2};
constexpr ops::OpRule grouped_transposed_rule{
    .op = "conv_transpose", .dims = "n s.. (g i), (g i) k.. o, (g o) -> n s.. (g o)", .windows = "s", .late = 2};

/// Adds the bias after a sum over ranks (Rule::late); otherwise the convolution has added it.
Tensor with_late(const ops::Placed& p, Tensor y, const Tensor& bias) {
  return p.sum() != 0 && bias ? add(y, bias.to(y.dtype())) : y;
}

Tensor divided_conv(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvOptions& o,
                    const Tensor& residual) {
  Shape whole = conv_output_shape(ops::global_shape(x), ops::global_shape(w), o, "conv");
  const ops::Placed p = o.groups == 1 ? ops::place(conv_rule, {x, w, bias}, whole)
                                      : ops::place(grouped_rule, {x, w, bias}, whole, {{'g', o.groups}});
  ConvOptions options = o;
  const bool late = p.sum() != 0 || residual;
  if (late) options.relu = false;
  if (o.groups > 1) options.groups = o.groups * p[1].dim(0) / ops::global_shape(w)[0];
  if (p[1].view().data != w.view().data) options.filters = nullptr;  // a temporary copy: its address is no cache key
  const bool alone = spatial_axes(p.spec(0)) == 0;
  Tensor y = with_late(p,
                       p.put(alone ? conv(p[0], p[1], p.sum() ? Tensor() : p[2], options)
                                   : halo_conv(p[0], p[1], p.sum() ? Tensor() : p[2], options, p.spec(0), p.out())),
                       bias);
  if (residual) y = add(y, residual);
  return late && o.relu ? relu(y) : y;
}

Tensor divided_conv_transpose(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvOptions& o,
                              const Extents& output_pad) {
  const char* op = "conv_transpose";
  check(x.rank() >= 3 && x.rank() <= 5 && w.rank() == x.rank(), op,
        "input is {}, the filter {}: expected [N, spatial..., I] and [I, kernel..., O / groups]", ops::global_shape(x),
        ops::global_shape(w));
  const std::vector<Window> all = windows(w.shape(), o);
  Shape whole = transposed_outputs(ops::global_shape(x), all, output_pad);
  whole[-1] = ops::global_shape(w)[-1] * o.groups;
  const ops::Placed p = o.groups == 1 ? ops::place(transposed_rule, {x, w, bias}, whole)
                                      : ops::place(grouped_transposed_rule, {x, w, bias}, whole, {{'g', o.groups}});
  ConvOptions options = o;
  if (o.groups > 1) options.groups = o.groups * p[1].dim(0) / ops::global_shape(w)[0];
  Tensor in = p[0];
  Extents pad = output_pad;
  if (spatial_axes(p.spec(0)) != 0) {
    const TransposedPatch mine = transposed_patch(p.out().box(), p.spec(0).box(), all, p.spec(0).global_shape());
    options.pad_begin = mine.pad_begin;
    options.pad_end = mine.pad_end;
    pad = mine.output_pad;
    in = halo_exchange(in, Halo(p.spec(0), p.out(), all, true));
  }
  return with_late(p, p.put(conv_transpose(in, p[1], p.sum() ? Tensor() : p[2], options, pad)), bias);
}

ConvOptions unfused(ConvOptions o) {
  o.relu = false;
  o.filters = nullptr;
  return o;
}
// The gradients of a convolution, by x and by w, as ops: each is linear in its operands, and their gradients are these
// functions again.
Tensor weight_gradient(const Tensor& x, const Tensor& dy, const ConvOptions& o, const Shape& w);
Tensor input_gradient(const Tensor& dy, const Tensor& w, const ConvOptions& o, const Shape& x) {
  const char* op = "conv_input_gradient";
  Tensor dx = Tensor::empty(x, dy.dtype(), dy.device());
  launch<kernel::ConvBackwardInput>(dx, dy, w, o, false);
  if (!needs_record(op, dx, {&dy, &w})) return dx;
  return record(op, std::move(dx), {dy, w},
                ops::twice([dy = SavedTensor(dy), w = SavedTensor(w), o](const Tensor& ddx, Gradients& g) {
                  ops::give_recorded(g, 0, [&] { return conv(ddx, w, {}, o); });
                  ops::give_recorded(g, 1, [&] { return weight_gradient(ddx, dy, o, w.shape()); });
                }));
}
Tensor weight_gradient(const Tensor& x, const Tensor& dy, const ConvOptions& o, const Shape& w) {
  const char* op = "conv_weight_gradient";
  Tensor dw = Tensor::empty(w, dy.dtype(), dy.device());
  if (dy.numel() > 0)
    launch<kernel::ConvBackwardWeight>(dw, View{}, x, dy, o, false);
  else
    launch<kernel::Fill>(dw, 0.0);
  if (!needs_record(op, dw, {&x, &dy})) return dw;
  return record(op, std::move(dw), {x, dy},
                ops::twice([x = SavedTensor(x), dy = SavedTensor(dy), o](const Tensor& ddw, Gradients& g) {
                  ops::give_recorded(g, 0, [&] { return input_gradient(dy, ddw, o, x.shape()); });
                  ops::give_recorded(g, 1, [&] { return conv(x, ddw, {}, o); });
                }));
}
/// The sum of dy [..., O] by channel, recorded.
Tensor bias_gradient(const Tensor& dy) { return dy.reshape(ops::as_rows(dy.shape())); }

}  // namespace

Tensor conv(const Tensor& x, const Tensor& w_given, const Tensor& bias_given, const ConvOptions& o, Tensor residual,
            ChannelStats* moments) {
  ops::check_float("conv", x);
  check(w_given.defined(), "conv", "the filter is undefined");
  if (ops::is_divided({&x, &w_given, &bias_given, &residual})) return divided_conv(x, w_given, bias_given, o, residual);
  const Shape shape = conv_output_shape(x.shape(), w_given.shape(), o, "conv");
  ops::check_channels("conv", "bias", bias_given, shape[-1], true);
  const auto [w, bias, leaf_w, leaf_bias] = ops::Weights(w_given, bias_given, x.dtype());
  if (residual) {
    ops::check_same_type("conv", x, residual);
    check(residual.shape() == shape, "conv", "the output is {}, the residual {}", shape, residual.shape());
    check(!is_recorded_or_traced({&x, &leaf_w, &leaf_bias, &residual}), "conv",
          "the residual needs a gradient, which conv() does not compute: use add() in training");
  }
  ConvOptions options = o;
  if (w.view().data != w_given.view().data) options.filters = nullptr;  // a converted copy, whose address is no key
  Tensor y = is_uniquely_owned(residual) ? residual : Tensor::empty(shape, x.dtype(), x.device());
  // Moments gathered in f32 are precise enough for bf16 and f16. Without rows there are none.
  if (moments && is_half(x.dtype()) && !residual && y.numel() > 0) {
    *moments = {Tensor::empty({shape[-1]}, DType::f32, x.device()), Tensor::empty({shape[-1]}, DType::f32, x.device())};
    launch<kernel::ConvMoments>(y, x, w, bias, moments->mean, moments->m2, options);
  } else {
    launch<kernel::Conv>(y, x, w, bias, residual, options);
  }
  if (!needs_record("conv", y, {&x, &leaf_w, &leaf_bias})) return y;

  Backward halves{.inputs =
                      [w = SavedTensor(w), o](const Tensor& dy, Gradients& g) {
                        if (!g.needs_grad(0)) return;
                        if (g.records()) return g.set_grad(0, input_gradient(dy, w, unfused(o), g.input(0).shape));
                        const Gradients::Target dx = g.grad_buffer(0);
                        launch<kernel::ConvBackwardInput>(dx.tensor, dy, w, o, dx.accumulate);
                      },
                  .weights =
                      [kept = SavedInput(x), o](const Tensor& dy, Gradients& g) {
                        if (!g.needs_grad(1) && !g.needs_grad(2)) return;
                        if (g.records()) {
                          ops::give_recorded(
                              g, 1, [&] { return weight_gradient(kept.recorded(), dy, unfused(o), g.input(1).shape); });
                          return ops::give_recorded(g, 2, [&] { return bias_gradient(dy); });
                        }
                        const Tensor x = kept.get();
                        const View rows = ops::shaped(dy, ops::as_rows(dy.shape()));
                        ops::give_weight_and_bias(g, 1, 2, rows, [&](const View& dw, const View& db, bool accumulate) {
                          launch<kernel::ConvBackwardWeight>(dw, db, x, dy, o, accumulate);
                        });
                      },
                  .twice = !is_half(x.dtype())};
  if (!o.relu) return record("conv", std::move(y), {x, leaf_w, leaf_bias}, o, std::move(halves));
  return ops::record_relu(y, record("conv", y.detach(), {x, leaf_w, leaf_bias}, o, std::move(halves)));
}

Tensor conv_transpose(const Tensor& x, const Tensor& w_given, const Tensor& bias_given, const ConvOptions& o,
                      const Extents& output_pad) {
  const char* op = "conv_transpose";
  ops::check_float(op, x);
  check(w_given.defined(), op, "the filter is undefined");
  check(!o.relu, op, "relu is set, which conv_transpose() does not support: call relu() on the result");
  if (ops::is_divided({&x, &w_given, &bias_given}))
    return divided_conv_transpose(x, w_given, bias_given, o, output_pad);
  const int rank = x.rank();
  check(rank >= 3 && rank <= 5 && w_given.rank() == rank && w_given.dim(0) == x.dim(-1), op,
        "input is {}, the filter {}: expected [N, spatial..., I] and [I, kernel..., O / groups]", x.shape(),
        w_given.shape());
  check(o.groups > 0 && x.dim(-1) % o.groups == 0, op, "{} groups do not divide {} input channels", o.groups,
        x.dim(-1));
  Shape shape = x.shape();
  for (int d = 0; d < rank - 2; ++d) {
    const auto s = static_cast<std::size_t>(d);
    check(o.stride[s] >= 1 && o.dilation[s] >= 1 && o.pad_begin[s] >= 0 && o.pad_end[s] >= 0 && output_pad[s] >= 0 &&
              output_pad[s] < std::max(o.stride[s], o.dilation[s]),
          op,
          "stride is {}, dilation {}, padding {} and {}, output padding {} on axis {}; expected the first two >= 1, "
          "the others >= 0, and output padding below the stride or the dilation",
          o.stride[s], o.dilation[s], o.pad_begin[s], o.pad_end[s], output_pad[s], d);
    shape[d + 1] = (x.dim(d + 1) - 1) * o.stride[s] - o.pad_begin[s] - o.pad_end[s] +
                   o.dilation[s] * (w_given.dim(d + 1) - 1) + 1 + output_pad[s];
    check(shape[d + 1] > 0, op, "input {} is too small for padding {} and {}", x.shape(), o.pad_begin[s], o.pad_end[s]);
  }
  shape[-1] = w_given.dim(-1) * o.groups;
  ops::check_channels(op, "bias", bias_given, shape[-1], true);
  const auto [w, bias, leaf_w, leaf_bias] = ops::Weights(w_given, bias_given, x.dtype());
  ConvOptions options = o;
  options.filters = nullptr;
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  launch<kernel::ConvBackwardInput>(y, x, w, options, false);
  if (bias && y.numel() > 0) ops::zip_into<pointwise::Add>(y, y, ops::in_type(bias.detach(), y.dtype()));
  if (!needs_record(op, y, {&x, &leaf_w, &leaf_bias})) return y;
  Backward halves{.inputs =
                      [w = SavedTensor(w), options](const Tensor& dy, Gradients& g) {
                        if (g.records()) return ops::give_recorded(g, 0, [&] { return conv(dy, w, {}, options); });
                        write_grad(g, 0,
                                   [&](const Tensor& dx) { launch<kernel::Conv>(dx, dy, w, View{}, View{}, options); });
                      },
                  .weights =
                      [x = SavedTensor(x), options](const Tensor& dy, Gradients& g) {
                        if (g.records()) {
                          ops::give_recorded(g, 1, [&] { return weight_gradient(dy, x, options, g.input(1).shape); });
                          return ops::give_recorded(g, 2, [&] { return bias_gradient(dy); });
                        }
                        write_grad(g, 2, [&](const Tensor& db) {
                          if (dy.numel() == 0) return launch<kernel::Fill>(db, 0.0);
                          ops::sum_to(db, dy.to(db.dtype()));
                        });
                        if (!g.needs_grad(1)) return;
                        const Gradients::Target dw = g.grad_buffer(1);
                        if (dy.numel() > 0)
                          launch<kernel::ConvBackwardWeight>(dw.tensor, View{}, dy, x, options, dw.accumulate);
                        else if (!dw.accumulate)
                          launch<kernel::Fill>(dw.tensor, 0.0);
                      },
                  .twice = !is_half(x.dtype())};
  return record(op, std::move(y), {x, leaf_w, leaf_bias}, std::pair(options, output_pad), std::move(halves));
}

}  // namespace trireme
