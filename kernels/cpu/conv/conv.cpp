// Convolutions: oneDNN for f32 and bf16 (in f32 if the CPU has no bf16), Eigen for f64. Activations are channels last.
// oneDNN chooses the filter's layout, and a reorder at each call follows changes of the weights.
#include "kernels/contracts/conv.h"

#include <cstring>
#include <limits>

#include "kernels/contracts/norm.h"
#include "kernels/core/kernel.h"
#include "kernels/cpu/conv/conv_dnnl.h"
#include "kernels/cpu/conv/conv_impl.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/vector.h"

namespace trireme {

bool dgrad_is_forward(const ConvShape& s) {
  if (s.options.groups != 1) return false;
  bool narrow = s.filter_cells() == 1, dense = true;
  for (std::size_t d = 0; d < static_cast<std::size_t>(s.dims); ++d) {
    const Index reach = s.options.dilation[d] * (s.filter[d] - 1);
    narrow = narrow && s.options.pad_begin[d] == 0 && s.options.pad_end[d] == 0;
    dense = dense && s.options.stride[d] == 1 && s.options.pad_begin[d] <= reach && s.options.pad_end[d] <= reach;
  }
  return narrow || dense;
}

ConvShape as_forward_conv(const ConvShape& s) {
  ConvShape t = s;
  std::swap(t.c_in, t.c_out);
  t.in = s.out;
  t.out = s.filter_cells() == 1 ? s.out : s.in;
  for (std::size_t d = 0; d < static_cast<std::size_t>(s.dims); ++d) {
    const Index reach = s.options.dilation[d] * (s.filter[d] - 1);
    t.options.stride[d] = 1;
    t.options.pad_begin[d] = reach - s.options.pad_begin[d];
    t.options.pad_end[d] = reach - s.options.pad_end[d];
  }
  return t;
}

void add_residual(const View& y, const View& residual, bool relu) {
  dispatch_float(y.dtype, kernel::Conv::name, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const A low = relu ? A{0} : -std::numeric_limits<A>::infinity();
    sweep(y.numel(), 1, [=, to = y.as<T>(), add = residual.as<const T>()](Index begin, Index end) {
#pragma omp simd
      for (Index i = begin; i < end; ++i) {
        const A v = static_cast<A>(to[i]) + static_cast<A>(add[i]);
        put(to[i], v < low ? low : v);
      }
    });
  });
}

namespace {

void conv(View y, View x, View w, View bias, View residual, const ConvOptions& o) {
  ConvShape s = conv_forward_shape(y, x, w, bias, residual, o);
  if (y.numel() == 0) return;
  if (conv_winograd(y, x, w, bias, residual, s) || conv_pointwise(y, x, w, bias, residual, s, false)) return;
  if (y.dtype != DType::f64 && !conv_direct_small_cin(x, s)) {
    if (onednn::conv_forward(y, x, w, bias, residual, s)) return;
    InF32 xf(x), wf(w), bf(bias), rf(residual);  // residual is read before y (possibly the same block) is written
    OutF32 yf(y, false);
    s.options.filters = nullptr;  // the copy's address is no key
    onednn::conv_forward(yf.view(), xf.view(), wf.view(), bf.view(), rf.view(), s);
    return yf.store();
  }
  onednn::Scratch copy(residual && residual.data == y.data ? static_cast<std::size_t>(y.bytes()) : 0);
  if (copy.data() != nullptr) {
    std::memcpy(copy.data(), residual.data, static_cast<std::size_t>(residual.bytes()));
    residual.data = copy.data();
  }
  if (residual) s.options.relu = false;
  (y.dtype == DType::f64 ? conv_f64 : conv_direct)(y, x, w, bias, s);
  if (residual) add_residual(y, residual, o.relu);
}

/// Reads y again, as two calls would.
void conv_moments(View y, View x, View w, View bias, View mean, View m2, const ConvOptions& o) {
  conv(y, x, w, bias, View{}, o);
  Kernel<kernel::BatchNormMoments>::on(DeviceKind::cpu)(mean, m2, y);
}

void conv_backward_input(View dx, View dy, View w, const ConvOptions& o, bool accumulate) {
  ConvShape s = conv_backward_input_shape(dx, dy, w, o);
  if (dx.numel() == 0) return;
  if (dx.dtype == DType::f64) {
    onednn::Scratch part(accumulate ? static_cast<std::size_t>(dx.bytes()) : 0);
    View to = dx;
    if (accumulate) to.data = part.data();
    conv_backward_input_f64(to, dy, w, s);
    if (accumulate) add_residual(dx, to, false);
    return;
  }
  if (conv_winograd_backward_input(dx, dy, w, s, accumulate)) return;
  if (s.in == s.out && dgrad_is_forward(s) &&
      conv_pointwise(dx, dy, w, View{}, accumulate ? dx : View{}, as_forward_conv(s), true))
    return;
  if (onednn::conv_backward_input(dx, dy, w, s, accumulate)) return;
  InF32 dyf(dy), wf(w);
  OutF32 dxf(dx, accumulate);
  onednn::conv_backward_input(dxf.view(), dyf.view(), wf.view(), s, accumulate);
  dxf.store();
}

void conv_backward_weight(View dw, View dbias, View x, View dy, const ConvOptions& o, bool accumulate) {
  constexpr auto op = kernel::ConvBackwardWeight::name;
  ConvShape s = conv_backward_weight_shape(dw, dbias, x, dy, o);
  if (x.numel() == 0) {
    if (accumulate) return;
    std::memset(dw.data, 0, static_cast<std::size_t>(dw.bytes()));
    if (dbias) std::memset(dbias.data, 0, static_cast<std::size_t>(dbias.bytes()));
    return;
  }
  if (conv_direct_small_cin(x, s)) return conv_backward_weight_small_cin(dw, dbias, x, dy, s, accumulate);
  if (conv_winograd_backward_weight(dw, x, dy, s, accumulate)) {
    if (dbias) sum_rows(dbias, dy, accumulate, op);
    return;
  }
  if (dw.dtype == DType::f64 || wgrad_direct_large_cin(x, s)) {
    (dw.dtype == DType::f64 ? conv_backward_weight_f64 : conv_backward_weight_large_cin)(dw, x, dy, s, accumulate);
    if (dbias) sum_rows(dbias, dy, accumulate, op);
    return;
  }
  OutF32 dwf(dw, accumulate), dbf(dbias, accumulate);
  if (!onednn::conv_backward_weight(dwf.view(), dbf.view(), x, dy, s, accumulate)) {
    InF32 xf(x), dyf(dy);
    onednn::conv_backward_weight(dwf.view(), dbf.view(), xf.view(), dyf.view(), s, accumulate);
  }
  dwf.store();
  if (dbias) dbf.store();
}

const Kernel<kernel::Conv> conv_cpu{DeviceKind::cpu, conv};
const Kernel<kernel::ConvMoments> conv_moments_cpu{DeviceKind::cpu, conv_moments};
const Kernel<kernel::ConvBackwardInput> conv_backward_input_cpu{DeviceKind::cpu, conv_backward_input};
const Kernel<kernel::ConvBackwardWeight> conv_backward_weight_cpu{DeviceKind::cpu, conv_backward_weight};

}  // namespace
}  // namespace trireme
