// Convolutions that oneDNN computes wrongly and that conv_dnnl*.cpp avoids. They were found by comparing about 100,000
// random convolutions with their definition on whole numbers, per implementation, and by reading the code of the
// implementations that failed. The random convolutions had 1 to 3 axes, strides, dilation, paddings up to three cells
// larger than the filter, groups, bias, sum and ReLU. All three directions ran in f32 and bf16, with scratch memory
// full of NaN, under each ONEDNN_MAX_CPU_ISA up to AVX512_CORE_AMX. tests/kernels/test_conv_random.cpp is that search
// as a test.
#pragma once
#include "kernels/core/dtype.h"
#include "kernels/plans/conv_shape.h"

namespace trireme::onednn {

/// Whether the forward convolution may use the sum post-op (y += conv).
///
/// oneDNN 2.6.3's brgconv:avx512_core and brgconv:avx512_core_bf16 are wrong for outputs whose window is entirely in
/// the padding: their post-ops read y at a wrong address, with wrong numbers or SIGSEGV. Without sum such outputs are
/// right. 3.2 is right.
///
/// 2.6.3's jit_dw:sse41 (depthwise, on CPUs without AVX2) adds y by an instruction for aligned memory: SIGSEGV unless
/// the number of channels is a multiple of 4.
bool may_sum(const ConvShape&);

/// Whether the forward convolution needs the padding of the last axis as real cells of the input, and no cells that no
/// output reads.
///
/// Along the last axis, 2.6.3's brgconv is wrong in two cases, and 3.2's in the first. (1) With padding at the begin
/// and as many cells at the end that no output reads, it uses uninitialized memory (in bf16, and in f32 with the sum
/// post-op): [3, 8, 8] by [4, 4, 8], stride 4, padding 3, 0. (2) With stride 1, 64 channels and p >= 4 cells of padding
/// at the end, for 2 p - 1 outputs, it adds other cells: [2, 7, 64] by [64, 9, 64], padding 4, 4. Both were found by
/// trying one axis with filters up to 9 and inputs up to 20. True for more shapes than these, in case the reason is a
/// wider one.
bool forward_needs_padding(const ConvShape&);

/// Whether the forward convolution, and the gradient by the input, may use an implementation with AMX (bf16, on CPUs
/// that have it). If not, the caller computes in f32, since oneDNN's next implementation also crashed at times
/// (SIGSEGV).
///
/// All of this is in 2.6.3. brgconv:avx512_core_amx_bf16 crashes (SIGSEGV), with or without post-ops, for an output
/// whose window along an axis other than the last is entirely in the padding: [2, 3, 2, 32] by [9, 2, 1, 32], stride 2
/// and padding 1, 3 along the first axis. With 3 axes this implementation, brgconv_1x1, and jit:avx512_core_amx_bf16
/// with its gradient by the input are wrong at times. The gradient is wrong if no output reads some cell of the
/// outermost axis ([1, 5, 2, 18, 48] by [16, 2, 2, 3, 48], stride 2 along it). For the others no single reason was
/// found (one case is [3, 4, 4, 19, 48] by [24, 1, 1, 1, 48] with stride 2 along the outer two axes); all failing cases
/// had more than 16 outputs in a tile's block.
bool may_use_amx(const ConvShape&);

/// Whether a filter's gradient needs the padding of the outer two of 3 axes as real cells of the input.
///
/// jit:avx512_core and jit_bf16:avx512_core with 3 spatial axes fail in this case: along one of the outer two axes, an
/// output's window begins before the input. The window of the same or the next output ends after the input. Their loops
/// then miscount the filter's cells: wrong numbers, or SIGSEGV. (2.6.3; rarer in 3.2.)
bool gradient_needs_padding(const ConvShape&);

/// Whether the gradient of a 1 x 1 filter needs a dense copy of the cells that outputs read, without stride.
///
/// jit_1x1:avx2 and jit_bf16_1x1:avx512_core copy these cells to scratch memory one whole vector at a time. If a vector
/// does not divide the number of channels, they write past its end, into other memory. (2.6.3; found with
/// TRIREME_FENCE=1.)
bool gradient_needs_dense(const ConvShape&);

/// Whether a filter's gradient must be computed in f32.
///
/// jit_bf16:avx512_core with one input channel reads past the end of x and multiplies that memory by 0: NaN at times.
bool gradient_needs_f32(const ConvShape&, DType);

}  // namespace trireme::onednn
