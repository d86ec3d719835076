// The CUDA backend's own convolutions, which stand behind cuDNN's, for all types and options: on an emulated device.
#include "kernels/cuda/conv_direct.h"
#include "kernels/cuda/plugin.h"
#include "kernels/cuda/rows.h"
#include "tests/kernels/cuda/device_conv.h"

namespace test_cuda_conv_direct {

using namespace trireme;
using namespace trireme::gpu;

namespace {

void conv(View y, View x, View w, View bias, View residual, const ConvOptions& o) {
  const ConvShape s = conv_forward_shape(y, x, w, bias, residual, o);
  conv_direct(On(y.device, kernel::Conv::name), y, x, w, bias, residual, s, o.relu);
}
void conv_backward_input(View dx, View dy, View w, const ConvOptions& o, bool accumulate) {
  const ConvShape s = conv_backward_input_shape(dx, dy, w, o);
  conv_direct_backward_input(On(dx.device, kernel::ConvBackwardInput::name), dx, dy, w, s, accumulate);
}
void conv_backward_weight(View dw, View dbias, View x, View dy, const ConvOptions& o, bool accumulate) {
  const ConvShape s = conv_backward_weight_shape(dw, dbias, x, dy, o);
  const On on(dw.device, kernel::ConvBackwardWeight::name);
  conv_direct_backward_weight(on, dw, x, dy, s, accumulate);
  if (dbias) sum_rows(on, dbias, dy, accumulate);
}

const Kernel<kernel::Conv> conv_cuda{DeviceKind::cuda, conv};
const Kernel<kernel::ConvBackwardInput> conv_backward_input_cuda{DeviceKind::cuda, conv_backward_input};
const Kernel<kernel::ConvBackwardWeight> conv_backward_weight_cuda{DeviceKind::cuda, conv_backward_weight};

}  // namespace

TEST_CASE("own convolutions on a device equal the CPU's") {
  set_runtime(DeviceKind::cuda, &device_runtime());
  test::check_convolutions(true);
  test::check_large_convolutions();
}

}  // namespace test_cuda_conv_direct
