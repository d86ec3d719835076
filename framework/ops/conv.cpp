// Convolution over 1 to 3 spatial axes.
#include "framework/ops/help.h"
#include "framework/ops/ops.h"
#include "kernels/formulas/pointwise.h"
#include "kernels/plans/conv_shape.h"

namespace trireme {
Tensor conv(const Tensor& x, const Tensor& w_given, const Tensor& bias_given, const ConvOptions& o, Tensor residual,
            ChannelStats* moments) {
  ops::check_float("conv", x);
  check(w_given.defined(), "conv", "the filter is undefined");
  if (const ShardSpec* s = ops::shard_spec_of({&x, &w_given, &residual}))
    return s->conv(x, w_given, bias_given, o, residual);
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

  Backward halves{[w = SavedTensor(w), o](const Tensor& dy, Gradients& g) {
                    if (!g.needs_grad(0)) return;
                    const Gradients::Target dx = g.grad_buffer(0);
                    launch<kernel::ConvBackwardInput>(dx.tensor, dy, w, o, dx.accumulate);
                  },
                  [kept = SavedInput(x), o](const Tensor& dy, Gradients& g) {
                    if (!g.needs_grad(1) && !g.needs_grad(2)) return;
                    const Tensor x = kept.get();
                    const View rows = ops::shaped(dy, ops::as_rows(dy.shape()));
                    ops::give_weight_and_bias(g, 1, 2, rows, [&](const View& dw, const View& db, bool accumulate) {
                      launch<kernel::ConvBackwardWeight>(dw, db, x, dy, o, accumulate);
                    });
                  }};
  if (!o.relu) return record("conv", std::move(y), {x, leaf_w, leaf_bias}, o, std::move(halves));
  return ops::record_relu(y, record("conv", y.detach(), {x, leaf_w, leaf_bias}, o, std::move(halves)));
}

Tensor conv_transpose(const Tensor& x, const Tensor& w_given, const Tensor& bias_given, const ConvOptions& o,
                      const Extents& output_pad) {
  const char* op = "conv_transpose";
  ops::check_float(op, x);
  check(w_given.defined(), op, "the filter is undefined");
  check(!o.relu, op, "relu is set, which conv_transpose() does not support: call relu() on the result");
  if (const ShardSpec* s = ops::shard_spec_of({&x, &w_given}))
    return s->conv_transpose(x, w_given, bias_given, o, output_pad);
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
  Backward halves{[w = SavedTensor(w), options](const Tensor& dy, Gradients& g) {
                    write_grad(g, 0,
                               [&](const Tensor& dx) { launch<kernel::Conv>(dx, dy, w, View{}, View{}, options); });
                  },
                  [x = SavedTensor(x), options](const Tensor& dy, Gradients& g) {
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
                  }};
  return record(op, std::move(y), {x, leaf_w, leaf_bias}, std::pair(options, output_pad), std::move(halves));
}

}  // namespace trireme
