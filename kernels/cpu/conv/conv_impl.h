// Functions that the implementations of convolution on the CPU share.
#pragma once
#include "kernels/cpu/vector.h"
#include "kernels/plans/conv_shape.h"

namespace trireme {

/// Whether the gradient by the input is itself a convolution of dy, with the filter's cells reversed and its input and
/// output channels swapped. That holds for stride 1. For 1 x 1 filters without padding it holds for any stride: the
/// result is then spread over the cells that forward read.
bool dgrad_is_forward(const ConvShape&);
/// If dgrad_is_forward(): that convolution, from dy's cells to dx's cells (or, with a stride, to the same number as
/// dy).
ConvShape as_forward_conv(const ConvShape&);

/// y += residual, then ReLU if `relu`: for convolutions that do not fuse these steps.
void add_residual(const View& y, const View& residual, bool relu);

// f64, by conv_f64.cpp. Shapes have been checked, and n > 0.
void conv_f64(View y, View x, View w, View bias, const ConvShape&);
void conv_backward_input_f64(View dx, View dy, View w, const ConvShape&);
void conv_backward_weight_f64(View dw, View x, View dy, const ConvShape&, bool accumulate);

/// f(Vectors{}) with the widest vectors of f32, on a CPU that has AVX2.
template <class F>
auto with_vectors(F&& f) {
  return vector_level() == VectorLevel::v4 ? f(Vectors<float, 64>{}) : f(Vectors<float, 32>{});
}

// f32 with AVX2 or AVX-512, where it is faster than oneDNN: see conv_direct.cpp. For few input channels: output and
// filter gradient; for many: filter gradient. Call only if the first two functions allow it, with n > 0.
bool conv_direct_small_cin(const View& x, const ConvShape&);
bool wgrad_direct_large_cin(const View& x, const ConvShape&);
void conv_direct(View y, View x, View w, View bias, const ConvShape&);
void conv_backward_weight_small_cin(View dw, View dbias, View x, View dy, const ConvShape&, bool accumulate);
void conv_backward_weight_large_cin(View dw, View x, View dy, const ConvShape&, bool accumulate);

// f32 with AVX2 or AVX-512, 3 x 3 with stride 1: see conv_winograd.cpp. They return false if they do not apply or are
// slower. y = conv(x, w), then bias, residual (may be y's block) and ReLU if options.relu; dx (+)=; dw (+)=.
bool conv_winograd(const View& y, const View& x, const View& w, const View& bias, const View& residual,
                   const ConvShape&);
bool conv_winograd_backward_input(const View& dx, const View& dy, const View& w, const ConvShape&, bool accumulate);
bool conv_winograd_backward_weight(const View& dw, const View& x, const View& dy, const ConvShape&, bool accumulate);

// f32 with AVX2 or AVX-512, 1 x 1 without padding: see conv_pointwise.cpp. Returns false if it does not apply or is
// slower. y = conv(x, w), then bias, residual (may be y's block) and ReLU if options.relu. turned: w is [c_in, c_out],
// as a gradient by the input has it.
bool conv_pointwise(const View& y, const View& x, const View& w, const View& bias, const View& residual,
                    const ConvShape&, bool turned);

}  // namespace trireme
