// Convolution over 1 to 3 spatial axes.
#include "framework/ops/help.h"
#include "framework/ops/ops.h"
#include "kernels/plans/conv_shape.h"

namespace trireme {
Tensor conv(const Tensor& x, const Tensor& w_given, const Tensor& bias_given, const ConvOptions& o, Tensor residual,
            ChannelStats* moments) {
  ops::check_float("conv", x);
  check(w_given.defined(), "conv", "the filter is undefined");
  if (const ShardSpec* s = ops::shard_spec_of({&x, &w_given})) return s->conv(x, w_given, bias_given, o, residual);
  const Shape shape = conv_output_shape(x.shape(), w_given.shape(), o, "conv");
  ops::check_channels("conv", "bias", bias_given, shape[-1], true);
  const auto [w, bias, leaf_w, leaf_bias] = ops::Weights(w_given, bias_given, x.dtype());
  if (residual) {
    ops::check_same_type("conv", x, residual);
    check(residual.shape() == shape, "conv", "the output is {}, the residual {}", shape, residual.shape());
    check(!is_recorded_or_traced({&x, &leaf_w, &leaf_bias, &residual}), "conv",
          "a residual is for evaluation: add() has a gradient");
  }
  ConvOptions options = o;
  if (w.view().data != w_given.view().data) options.filters = nullptr;  // a converted copy: its address says nothing
  Tensor y = is_uniquely_owned(residual) ? residual : Tensor::empty(shape, x.dtype(), x.device());
  // What is gathered in f32 on the way is enough for narrow types; without rows there is nothing to gather.
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

}  // namespace trireme
