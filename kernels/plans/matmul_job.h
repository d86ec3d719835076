// MatMulJob: the extents and options of a matrix product, from its operands, checked once for all backends.
#pragma once
#include "kernels/contracts/matmul.h"
#include "kernels/core/kernel.h"

namespace trireme {

/// c [batch, m, n] (+)= op(a) op(b) (+ bias [n]), followed by ReLU if relu. a and b are batches, or one matrix for the
/// whole batch.
struct MatMulJob {
  Index batch = 1, m = 0, n = 0, k = 0;  ///< op(a) [m, k], op(b) [k, n]
  bool batched_a = false, batched_b = false;
  bool transpose_a = false, transpose_b = false, accumulate = false, relu = false;
};

/// The shape [M, N] or [B, M, N] of op(a) op(b). Either operand may be one matrix for the whole batch. Throws Error
/// naming op if they do not fit.
Shape matmul_output_shape(const Shape& a, const Shape& b, const MatMulOptions&, std::string_view op);

// One function per contract, with the contract's operands. Types are not checked.
/// For kernel::MatMul. Throws Error if shapes do not fit.
MatMulJob matmul_job(const View& c, const View& a, const View& b, const MatMulOptions&);
/// As above, for kernel::Linear.
MatMulJob linear_job(const View& y, const View& x, const View& w, const View& bias, bool relu);
/// As above, for kernel::LinearBackwardInput.
MatMulJob linear_backward_input_job(const View& dx, const View& dy, const View& w);
/// As above, for kernel::LinearBackwardWeight; dbias is not checked.
MatMulJob linear_backward_weight_job(const View& dw, const View& x, const View& dy, bool accumulate);

/// Throws Error naming op unless a and b have the same floating type, and c and bias have that type or f32.
void check_matmul_types(const View& c, const View& a, const View& b, const View& bias, std::string_view op);

/// The kernels of all products on one kind of device. Backend: a struct with
///   static void multiply(const View& c, const View& a, const View& b, const View& bias, MatMulJob, std::string_view);
///   static void sum_rows(const View& sum, const View& x, bool accumulate, std::string_view op);
template <DeviceKind kind, class Backend>
class MatMulKernels {
  static void matmul(View c, View a, View b, const MatMulOptions& o) {
    Backend::multiply(c, a, b, View{}, matmul_job(c, a, b, o), kernel::MatMul::name);
  }
  static void linear(View y, View x, View w, View bias, bool relu) {
    Backend::multiply(y, x, w, bias, linear_job(y, x, w, bias, relu), kernel::Linear::name);
  }
  static void linear_backward_input(View dx, View dy, View w) {
    Backend::multiply(dx, dy, w, View{}, linear_backward_input_job(dx, dy, w), kernel::LinearBackwardInput::name);
  }
  static void linear_backward_weight(View dw, View dbias, View x, View dy, bool accumulate) {
    constexpr auto op = kernel::LinearBackwardWeight::name;
    Backend::multiply(dw, dy, x, View{}, linear_backward_weight_job(dw, x, dy, accumulate), op);
    if (dbias) Backend::sum_rows(dbias, dy, accumulate, op);
  }

  Kernel<kernel::MatMul> matmul_{kind, matmul};
  Kernel<kernel::Linear> linear_{kind, linear};
  Kernel<kernel::LinearBackwardInput> linear_backward_input_{kind, linear_backward_input};
  Kernel<kernel::LinearBackwardWeight> linear_backward_weight_{kind, linear_backward_weight};
};

}  // namespace trireme
