// Convolutions: cuDNN's engines, chosen by measuring, and our own kernels (conv_direct.h) for cases without an engine.
// Steps that cuDNN cannot fuse with the convolution follow in a separate pass.
//
// The 3 channels of images do not suit tensor cores: in bf16 cuDNN's engines pad them to 8 in their workspace, at the
// cost of a pass over the images. Custom kernels would need the same padding. Images with 4 or 8 channels avoid it.
#include "kernels/contracts/conv.h"

#include "kernels/core/kernel.h"
#include "kernels/cuda/conv_direct.h"
#include "kernels/cuda/conv_graph.h"
#include "kernels/cuda/moments.h"
#include "kernels/cuda/rows.h"
#include "kernels/plans/norm_checks.h"

namespace trireme::gpu {
namespace {

/// mean and m2: View{} if the moments of y are not needed.
void forward(const On& on, const View& y, const View& x, const View& w, const View& bias, const View& residual,
             const ConvShape& s, const View& mean, const View& m2) {
  const bool relu = s.options.relu;
  const Index rows = y.numel() / s.c_out, apart = (s.c_out + 3) / 4 * 4;  // both sums begin at 16 bytes
  const bool summed = mean && is_half(y.dtype);
  const Scratch sums(on, summed ? static_cast<std::size_t>(2 * apart) * sizeof(float) : 0);
  float* const squares = summed ? sums.as<float>() + apart : nullptr;
  const auto measure = [&](void* out) {
    View to = y;
    to.data = out;
    if (mean) moments(on, mean, m2, to);
  };

  ConvWay whole{{.form = ConvForm::forward, .shape = s, .type = y.dtype}}, alone = whole;
  whole.job.with_bias = static_cast<bool>(bias);
  whole.job.bias = bias.dtype;
  whole.job.with_residual = static_cast<bool>(residual);
  ConvWay with_sums = whole;
  with_sums.job.with_sums = true;
  with_sums.then = [&](void*, void*) { moments_of_sums(on, mean, m2, sums.as<float>(), squares, rows); };
  if (mean) whole.then = [&](void* out, void*) { measure(out); };
  alone.job.shape.options.relu = false;
  // A cuDNN graph must not write its input. If residual is y's block, the graph does the convolution only, and the tail
  // adds the residual. This moves no more bytes than a graph with another result block and a copy.
  alone.apart = residual && residual.data == y.data;
  alone.then = [&](void* out, void* product) {
    View to = y, part = y;
    to.data = out;
    part.data = product;
    conv_tail(on, to, part, bias, residual, relu);
    measure(out);
  };

  std::vector<ConvWay> ways;
  if (summed) ways.push_back(std::move(with_sums));
  if (!alone.apart) ways.push_back(std::move(whole));
  if (bias || residual || relu) ways.push_back(std::move(alone));
  if (run_planned(on, {x.data, w.data, y.data, bias.data, residual.data, sums.data(), squares}, y, ways)) return;
  conv_direct(on, y, x, w, bias, residual, s, relu);
  measure(y.data);
}

void conv(View y, View x, View w, View bias, View residual, const ConvOptions& o) {
  const ConvShape s = conv_forward_shape(y, x, w, bias, residual, o);
  if (y.numel() == 0) return;
  forward(On(y.device, kernel::Conv::name), y, x, w, bias, residual, s, View{}, View{});
}

void conv_moments(View y, View x, View w, View bias, View mean, View m2, const ConvOptions& o) {
  constexpr auto op = kernel::ConvMoments::name;
  const ConvShape s = conv_forward_shape(y, x, w, bias, View{}, o);
  check_channels({&mean, &m2}, y.shape, op);
  const On on(y.device, op);
  if (y.numel() == 0) return moments(on, mean, m2, y);
  forward(on, y, x, w, bias, View{}, s, mean, m2);
}

void conv_backward_input(View dx, View dy, View w, const ConvOptions& o, bool accumulate) {
  const ConvShape s = conv_backward_input_shape(dx, dy, w, o);
  if (dx.numel() == 0) return;
  const On on(dx.device, kernel::ConvBackwardInput::name);
  const ConvWay whole{{.form = ConvForm::backward_input, .shape = s, .type = dx.dtype, .accumulate = accumulate}};
  ConvWay added = whole;
  added.job.accumulate = false;
  added.apart = true;
  added.then = [&](void* out, void* product) {
    View to = dx, part = dx;
    to.data = out;
    part.data = product;
    conv_tail(on, to, part, View{}, to, false);
  };
  const std::array ways{whole, added};
  if (!run_planned(on, {dx.data, w.data, dy.data}, dx, std::span(ways).first(accumulate ? 2 : 1)))
    conv_direct_backward_input(on, dx, dy, w, s, accumulate);
}

/// dw (+)=; none of the operands is empty.
///
/// An f32 dw of bf16 or f16 operands is computed in the faster of two ways. One is a graph that cuDNN compiles, with
/// f32 sums. The other is a dw in the operands' type that is then converted to f32 or added: it rounds each step's
/// gradient once, as PyTorch's autocast does.
void backward_weight(const On& on, View dw, const View& x, const View& dy, const ConvShape& s, bool accumulate) {
  const bool wide = dw.dtype != x.dtype;
  auto add_to = [&](DType product_type) {
    return [&, product_type](void* out, void* product) {
      View to = dw;
      to.data = out;
      to.shape = {dw.numel()};
      sum_rows(on, to, {product, {1, dw.numel()}, product_type, dw.device}, accumulate);
    };
  };
  ConvWay narrow{{.form = ConvForm::backward_weight, .shape = s, .type = x.dtype}, add_to(x.dtype), true};
  ConvWay whole = narrow;
  if (wide)
    whole.job.form = ConvForm::backward_weight_wide;
  else
    whole.job.accumulate = accumulate;
  if (wide && accumulate)
    whole.then = add_to(DType::f32);
  else
    whole.then = {};
  const std::array ways{whole, narrow};
  if (!run_planned(on, {x.data, dw.data, dy.data}, dw, std::span(ways).first(wide || accumulate ? 2 : 1)))
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
const Kernel<kernel::ConvMoments> conv_moments_cuda{DeviceKind::cuda, conv_moments};
const Kernel<kernel::ConvBackwardInput> conv_backward_input_cuda{DeviceKind::cuda, conv_backward_input};
const Kernel<kernel::ConvBackwardWeight> conv_backward_weight_cuda{DeviceKind::cuda, conv_backward_weight};

}  // namespace
}  // namespace trireme::gpu
