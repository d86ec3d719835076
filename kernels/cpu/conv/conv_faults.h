// Convolutions that oneDNN computes wrongly, which conv_dnnl*.cpp steer around. The classes were found by comparing
// some 100,000 random convolutions (1 to 3 axes, strides, dilation, paddings up to three cells beyond the filter,
// groups, bias, sum and ReLU; all three directions; f32 and bf16; scratch memory full of NaN; under each
// ONEDNN_MAX_CPU_ISA up to AVX512_CORE_AMX) with their definition on whole numbers, by implementation, and by reading
// the code of those that failed. tests/kernels/test_conv_random.cpp is that search as a test.
#pragma once
#include "kernels/core/dtype.h"
#include "kernels/plans/conv_shape.h"

namespace trireme::onednn {

/// Whether the forward convolution may be given the sum post-op (y += conv).
///
/// oneDNN 2.6.3's brgconv:avx512_core and brgconv:avx512_core_bf16 let the post-ops of outputs whose window lies wholly
/// in the padding read y at a wild address: wrong numbers, or SIGSEGV. Without sum such outputs are right. 3.2 is.
///
/// jit_dw:sse41 of 2.6.3 (depthwise, on CPUs without AVX2) adds y by an instruction for aligned memory: SIGSEGV unless
/// the number of channels is a multiple of 4.
bool may_sum(const ConvShape&);

/// Whether the forward convolution, and the gradient by the input, may be computed by an implementation that uses AMX
/// (bf16, on CPUs that have it). Where not, the caller goes through f32: to move a description on to oneDNN's next
/// implementation was SIGSEGV at times.
///
/// All in 2.6.3. brgconv:avx512_core_amx_bf16: an output whose window, along an axis other than the last, lies wholly
/// in the padding is SIGSEGV, with any post-ops or none: [2, 3, 2, 32] by [9, 2, 1, 32], stride 2 and padding 1, 3
/// along the first axis. With 3 axes this and brgconv_1x1, jit:avx512_core_amx_bf16 and its gradient by the input are
/// wrong at times: the gradient where a cell of the outermost axis is read by no output ([1, 5, 2, 18, 48] by [16, 2,
/// 2, 3, 48], stride 2 along it), the others for no one reason that was found ([3, 4, 4, 19, 48] by [24, 1, 1, 1, 48]
/// with stride 2 along the outer two is one case); those that were met have more than 16 outputs in a tile's block.
bool may_use_amx(const ConvShape&);

/// Whether a filter's gradient wants the padding of the outer two of 3 axes to be cells of the input.
///
/// jit:avx512_core and jit_bf16:avx512_core, with 3 spatial axes: when, along one of the outer two, outputs whose
/// window begins in front of the input are followed at once by, or are themselves, outputs whose window ends behind it,
/// their loops lose count of the filter's cells: wrong numbers, or SIGSEGV. (2.6.3; in 3.2 it is rarer.)
bool gradient_needs_padding(const ConvShape&);

/// Whether a 1 x 1 filter's gradient wants the cells that outputs read side by side, without stride.
///
/// jit_1x1:avx2 and jit_bf16_1x1:avx512_core copy these cells to scratch memory a whole vector at a time: where that
/// does not divide the number of channels, behind its end, into memory of others or another thread's. (2.6.3; found
/// with TRIREME_FENCE=1.)
bool gradient_needs_dense(const ConvShape&);

/// Whether a filter's gradient must be computed in f32.
///
/// jit_bf16:avx512_core with one input channel reads x behind its end, and multiplies what lies there by 0: NaN at
/// times.
bool gradient_needs_f32(const ConvShape&, DType);

}  // namespace trireme::onednn
