// Convolutions: cuDNN's engines, chosen by measuring; kernels of our own (conv_direct.h) for what it has none for. What
// cuDNN cannot join to the convolution follows it in a pass of its own.
//
// The 3 channels of images suit no tensor core: for bf16 cuDNN's engines pad them to 8 in their workspace, at the price
// of a pass over the images. Kernels of ours that padded them would save nothing; images that come with 4 or 8 would.
#include "kernels/conv.h"

#include "kernels/cuda/conv_direct.h"
#include "kernels/cuda/conv_graph.h"
#include "kernels/cuda/conv_tail.h"
#include "kernels/cuda/rows.h"
#include "kernels/kernel.h"

namespace trireme::gpu {
namespace {

void conv(View y, View x, View w, View bias, View residual, const ConvOptions& o) {
  const ConvShape s = conv_forward_shape(y, x, w, bias, residual, o);
  if (y.numel() == 0) return;
  const On on(y.device, kernel::Conv::name);
  ConvJob job{.form = ConvForm::forward, .shape = s, .type = y.dtype};
  job.with_bias = static_cast<bool>(bias), job.bias = bias.dtype, job.with_residual = static_cast<bool>(residual);
  if (run_planned(on, job, {x.data, w.data, y.data, bias.data, residual.data})) return;
  if (bias || residual || o.relu) {
    job.with_bias = job.with_residual = job.shape.options.relu = false;
    // The residual's block is not written before it has been read.
    const Scratch product(on, residual && residual.data == y.data ? static_cast<std::size_t>(y.bytes()) : 0);
    View part = y;
    if (product.data() != nullptr) part.data = product.data();
    if (run_planned(on, job, {x.data, w.data, part.data})) return conv_tail(on, y, part, bias, residual, o.relu);
  }
  conv_direct(on, y, x, w, bias, residual, s, o.relu);
}

void conv_backward_input(View dx, View dy, View w, const ConvOptions& o, bool accumulate) {
  const ConvShape s = conv_backward_input_shape(dx, dy, w, o);
  if (dx.numel() == 0) return;
  const On on(dx.device, kernel::ConvBackwardInput::name);
  ConvJob job{.form = ConvForm::backward_input, .shape = s, .type = dx.dtype, .accumulate = accumulate};
  if (run_planned(on, job, {dx.data, w.data, dy.data})) return;
  if (accumulate) {
    job.accumulate = false;
    const Scratch product(on, static_cast<std::size_t>(dx.bytes()));
    View part = dx;
    part.data = product.data();
    if (run_planned(on, job, {part.data, w.data, dy.data})) return conv_tail(on, dx, part, View{}, dx, false);
  }
  conv_direct_backward_input(on, dx, dy, w, s, accumulate);
}

/// dw (+)=; none of the operands is empty.
void backward_weight(const On& on, View dw, const View& x, const View& dy, const ConvShape& s, bool accumulate) {
  const bool wide = dw.dtype != x.dtype;
  ConvJob job{.form = wide ? ConvForm::backward_weight_wide : ConvForm::backward_weight,
              .shape = s,
              .type = x.dtype,
              .accumulate = accumulate};
  if (run_planned(on, job, {x.data, dw.data, dy.data})) return;
  if (wide || accumulate) {
    job.form = ConvForm::backward_weight, job.accumulate = false;
    const Scratch product(on, static_cast<std::size_t>(dw.numel() * size_of(x.dtype)));
    const View part{product.data(), {1, dw.numel()}, x.dtype, dw.device};
    if (run_planned(on, job, {x.data, part.data, dy.data})) {
      dw.shape = {dw.numel()};
      return sum_rows(on, dw, part, accumulate);
    }
  }
  conv_direct_backward_weight(on, dw, x, dy, s, accumulate);
}

void conv_backward_weight(View dw, View dbias, View x, View dy, const ConvOptions& o, bool accumulate) {
  const ConvShape s = conv_backward_weight_shape(dw, dbias, x, dy, o);
  const On on(dw.device, kernel::ConvBackwardWeight::name);
  if (x.numel() == 0) {
    if (accumulate) return;
    for (const View& v : {dw, dbias})
      if (v) ok(cudaMemsetAsync(v.data, 0, static_cast<std::size_t>(v.bytes()), on.stream()), on.op());
    return;
  }
  backward_weight(on, dw, x, dy, s, accumulate);
  if (dbias) sum_rows(on, dbias, dy, accumulate);
}

const Kernel<kernel::Conv> conv_cuda{DeviceKind::cuda, conv};
const Kernel<kernel::ConvBackwardInput> conv_backward_input_cuda{DeviceKind::cuda, conv_backward_input};
const Kernel<kernel::ConvBackwardWeight> conv_backward_weight_cuda{DeviceKind::cuda, conv_backward_weight};

}  // namespace
}  // namespace trireme::gpu
