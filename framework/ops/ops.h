// All ops: functions from tensors to tensors, recorded on the tape. Forward and backward of each are together in
// framework/ops/. Types are f32, f64, bf16 and, on CUDA, f16, unless stated otherwise. C is always the last axis. Ops
// throw Error for operands that do not fit.
#pragma once
#include <algorithm>
#include <array>
#include <concepts>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "framework/ops/attention.h"
#include "framework/ops/loss.h"
#include "framework/ops/select.h"
#include "framework/tensor/tensor.h"
#include "kernels/contracts/conv.h"
#include "kernels/contracts/loss.h"
#include "kernels/contracts/matmul.h"
#include "kernels/contracts/move.h"
#include "kernels/contracts/pool.h"

namespace trireme {

// Dtypes: operands have the same dtype, which is also the result's (to(DType) converts; there is no type promotion). A
// number takes the dtype of the tensor, and throws Error if an integer dtype cannot represent it. Comparisons give
// boolean; sums, products and cumulative sums of integers give i64.

// Binary, elementwise, with NumPy broadcasting: extents are equal or 1. Integers wrap around on overflow.
Tensor add(const Tensor& a, const Tensor& b);       ///< a + b (torch.add), with NumPy broadcasting
Tensor sub(const Tensor& a, const Tensor& b);       ///< a - b (torch.sub), with NumPy broadcasting
Tensor mul(const Tensor& a, const Tensor& b);       ///< a b, elementwise (torch.mul), with NumPy broadcasting
Tensor div(const Tensor& a, const Tensor& b);       ///< a / b (torch.div), for floating types
Tensor div_scalar(const Tensor& x, double number);  ///< x / number, for floating types
/// torch.floor_divide: floor(a / b); gradient 0. Integers divided by 0 give 0.
Tensor floor_divide(const Tensor& a, const Tensor& b);
Tensor floor_divide(const Tensor& a, double b);      ///< as above, with a number b
Tensor remainder(const Tensor& a, const Tensor& b);  ///< torch.remainder: a - b floor_divide(a, b); it has b's sign
Tensor remainder(const Tensor& a, double b);         ///< as above, with a number b
Tensor maximum(const Tensor& a, const Tensor& b);    ///< torch.maximum: ties share the gradient; NaN if either is NaN
Tensor minimum(const Tensor& a, const Tensor& b);    ///< torch.minimum: ties and NaN as in maximum()
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }  ///< add()
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }  ///< sub()
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }  ///< mul()
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }  ///< div()

// A tensor and a number, which is rounded to the type of the computation on x (f64 for f64, f32 for other floats).
Tensor scale(const Tensor& x, double factor);                                               ///< factor x
Tensor add_scalar(const Tensor& x, double number);                                          ///< x + number
inline Tensor operator+(const Tensor& x, double number) { return add_scalar(x, number); }   ///< add_scalar()
inline Tensor operator+(double number, const Tensor& x) { return add_scalar(x, number); }   ///< add_scalar()
inline Tensor operator-(const Tensor& x, double number) { return add_scalar(x, -number); }  ///< add_scalar() of -number
inline Tensor operator*(const Tensor& x, double factor) { return scale(x, factor); }        ///< scale()
inline Tensor operator*(double factor, const Tensor& x) { return scale(x, factor); }        ///< scale()
inline Tensor operator/(const Tensor& x, double number) { return div_scalar(x, number); }   ///< div_scalar()
// x = x + y and so on. x becomes a new tensor; another tensor that shared its memory keeps the old elements.
inline Tensor& operator+=(Tensor& x, const Tensor& y) { return x = x + y; }     ///< x = x + y
inline Tensor& operator-=(Tensor& x, const Tensor& y) { return x = x - y; }     ///< x = x - y
inline Tensor& operator*=(Tensor& x, const Tensor& y) { return x = x * y; }     ///< x = x * y
inline Tensor& operator/=(Tensor& x, const Tensor& y) { return x = x / y; }     ///< x = x / y
inline Tensor& operator+=(Tensor& x, double number) { return x = x + number; }  ///< x = x + number
inline Tensor& operator-=(Tensor& x, double number) { return x = x - number; }  ///< x = x - number
inline Tensor& operator*=(Tensor& x, double number) { return x = x * number; }  ///< x = x * number
inline Tensor& operator/=(Tensor& x, double number) { return x = x / number; }  ///< x = x / number

// Unary, elementwise, for floating types. The formulas are in kernels/formulas/pointwise.h and equal PyTorch's
// functions of the same names. Throw Error for a parameter outside its stated range.
Tensor relu(const Tensor&);                                 ///< max(x, 0); gradient 0 at 0
Tensor leaky_relu(const Tensor&);                           ///< leaky_relu(x, 0.01)
Tensor leaky_relu(const Tensor& x, double negative_slope);  ///< x if x >= 0, else negative_slope x; negative_slope >= 0
Tensor elu(const Tensor&);                                  ///< elu(x, 1)
Tensor elu(const Tensor& x, double alpha);  ///< x if x >= 0, else alpha (exp(x) - 1); alpha >= 0 (arXiv 1511.07289)
Tensor gelu(const Tensor&);                 ///< x Phi(x), exact (arXiv 1606.08415)
Tensor gelu_tanh(const Tensor&);            ///< gelu() approximated by tanh, as in GPT-2 (arXiv 1606.08415)
Tensor silu(const Tensor&);                 ///< x sigmoid(x) (arXiv 1702.03118)
Tensor mish(const Tensor&);                 ///< x tanh(softplus(x)) (arXiv 1908.08681)
Tensor hardswish(const Tensor&);            ///< x hardsigmoid(x) (arXiv 1905.02244)
Tensor hardsigmoid(const Tensor&);          ///< relu6(x + 3) / 6 (arXiv 1905.02244)
Tensor hardtanh(const Tensor& x, double low = -1, double high = 1);  ///< clamp(), but with gradient 0 at low and high
Tensor relu6(const Tensor&);                                         ///< hardtanh(x, 0, 6)
Tensor clamp(const Tensor& x, double low, double high);  ///< x in [low, high], low <= high; gradient 1 at both bounds
Tensor sigmoid(const Tensor&);                           ///< 1 / (1 + exp(-x))
Tensor tanh(const Tensor&);                              ///< hyperbolic tangent
Tensor softplus(const Tensor&);                          ///< softplus(x, 1)
Tensor softplus(const Tensor& x, double beta);  ///< log(1 + exp(beta x)) / beta, beta > 0, without PyTorch's threshold
Tensor softsign(const Tensor&);                 ///< x / (1 + |x|)
Tensor exp(const Tensor&);                      ///< e^x
Tensor log(const Tensor&);                      ///< natural logarithm; -inf at 0, NaN below 0
Tensor expm1(const Tensor&);                    ///< e^x - 1, exact near 0
Tensor log1p(const Tensor&);                    ///< log(1 + x), exact near 0
Tensor erf(const Tensor&);                      ///< the error function
Tensor sin(const Tensor&);                      ///< of x in radians
Tensor cos(const Tensor&);                      ///< of x in radians
Tensor pow(const Tensor& x, double exponent);   ///< x^exponent; NaN for x < 0 unless the exponent is an integer
Tensor floor(const Tensor&);                    ///< largest integer <= x, as a float; gradient 0
Tensor ceil(const Tensor&);                     ///< smallest integer >= x, as a float; gradient 0
Tensor round(const Tensor&);                    ///< nearest integer, ties to even; gradient 0
Tensor sign(const Tensor&);                     ///< -1, 0 or 1; gradient 0
Tensor sqrt(const Tensor&);                     ///< square root; NaN below 0
Tensor rsqrt(const Tensor&);                    ///< 1 / sqrt(x)
Tensor reciprocal(const Tensor&);               ///< 1 / x
Tensor square(const Tensor&);                   ///< x^2
Tensor abs(const Tensor&);                      ///< |x|, for integers too; gradient 0 at 0
Tensor neg(const Tensor&);                      ///< -x, for integers too
/// F.prelu: x if x >= 0, else slope x. slope: one number [1], or one per channel [C] of x [..., C].
Tensor prelu(const Tensor& x, const Tensor& slope);
Tensor glu(const Tensor& x);  ///< F.glu: a sigmoid(b), where a and b are the halves of the last axis (arXiv 1612.08083)
Tensor swiglu(const Tensor& x);  ///< silu(a) b, where a and b are the halves of the last axis (arXiv 2002.05202)
inline Tensor operator-(const Tensor& x) { return neg(x); }                                 ///< neg()
inline Tensor operator-(double number, const Tensor& x) { return neg(x) + number; }         ///< number - x
inline Tensor operator/(double number, const Tensor& x) { return number * reciprocal(x); }  ///< number / x

// Products.
/// torch.matmul: [M, K] and [K, N] -> [M, N]. The options may transpose the last two axes of a and b first. More axes
/// in front are batches of matrices, and broadcast. A vector [K] acts as [1, K] on the left and as [K, 1] on the right,
/// and the result lacks that axis. Throws Error for MatMulOptions::accumulate.
Tensor matmul(const Tensor& a, const Tensor& b, const MatMulOptions& = {});
/// F.linear: x w^T + bias: x [..., I], w [O, I], bias [O] or undefined -> [..., O]; followed by ReLU if relu.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias = {}, bool relu = false);
/// Statistics of each channel of a tensor [..., C]: f32, or f64 for an f64 tensor. Undefined: not computed.
struct ChannelStats {
  Tensor mean,  ///< [C]
      m2;       ///< [C]: sum of squared deviations from the mean
};
/// F.conv1d to F.conv3d (cross-correlation): x [N, spatial..., I], w [O, kernel..., I/groups], bias [O] or undefined, 1
/// to 3 spatial axes -> [N, spatial'..., O] with spatial' = floor((spatial + pad_begin + pad_end - dilation (kernel -
/// 1) - 1) / stride) + 1. residual: a tensor of the output's shape that is added before the ReLU, in evaluation only:
/// it has no gradient (use add() for that). It is overwritten if nothing else holds it. moments: set to the output's
/// statistics if the convolution computes them at less cost than batch_norm().
Tensor conv(const Tensor& x, const Tensor& w, const Tensor& bias = {}, const ConvOptions& = {}, Tensor residual = {},
            ChannelStats* moments = nullptr);

/// F.conv_transpose1d to 3d: the gradient of conv() by its input. x [N, spatial..., I], w [I, kernel..., O/groups],
/// bias [O] or undefined -> [N, spatial'..., O] with spatial' = (spatial - 1) stride - pad_begin - pad_end + dilation
/// (kernel - 1) + 1 + output_pad. output_pad: cells added after each axis, fewer than the stride or the dilation.
/// Throws Error if ConvOptions::relu is set.
Tensor conv_transpose(const Tensor& x, const Tensor& w, const Tensor& bias = {}, const ConvOptions& = {},
                      const Extents& output_pad = {0, 0, 0});

// Pooling. With PoolOptions::ceil_mode the last window may end outside of x, by the rules of F.max_pool2d.
/// F.max_pool1d to F.max_pool3d: x [N, spatial..., C], 1 to 3 spatial axes -> [N, spatial'..., C] with spatial' =
/// floor((spatial + pad_begin + pad_end - dilation (window - 1) - 1) / stride) + 1. Padding must be smaller than the
/// (dilated) window. The first of equal elements gets the gradient. Throws Error for options that do not suit x.
Tensor max_pool(const Tensor& x, const PoolOptions&);
/// F.avg_pool1d to F.avg_pool3d, with shapes as in max_pool(). PoolOptions::count_padding: whether padding counts.
/// Throws Error as max_pool(), and for a dilation other than 1.
Tensor avg_pool(const Tensor& x, const PoolOptions&);
/// Mean over the spatial axes: [N, spatial..., C] -> [N, C].
Tensor global_avg_pool(const Tensor& x);
/// Maximum over the spatial axes: [N, spatial..., C] -> [N, C]; ties share the gradient equally, as in torch.amax.
Tensor global_max_pool(const Tensor& x);
/// F.adaptive_avg_pool1d to 3d: [N, spatial..., C] -> [N, size..., C]. Cell o of an axis is the mean over cells
/// [floor(o in / out), ceil((o + 1) in / out)). size: one extent per spatial axis.
Tensor adaptive_avg_pool(const Tensor& x, const Shape& size);
/// F.adaptive_max_pool1d to 3d: the maximum over the same cells; the first of equal ones gets the gradient.
Tensor adaptive_max_pool(const Tensor& x, const Shape& size);
/// Options of interpolate(). Set either size or scale.
struct InterpolateOptions {
  Shape size = {};                            ///< extents of the result, one per spatial axis
  double scale = 0;                           ///< factor of each extent: floor(scale extent); 0: not set
  ResampleMode mode = ResampleMode::nearest;  ///< nearest, linear (bilinear, trilinear) or area
  bool align_corners = false;                 ///< for linear: PyTorch's align_corners
};
/// F.interpolate: [N, spatial..., C] with 1 to 3 spatial axes -> [N, size..., C].
Tensor interpolate(const Tensor& x, const InterpolateOptions&);
/// dropout(max_pool(relu(x + bias))) in one pass; bias [C] or undefined. See kernels/contracts/pool.h and dropout().
/// Throws Error unless windows tile x: stride = window, no padding, no dilation, at most 254 cells per window.
Tensor bias_relu_pool_dropout(const Tensor& x, const Tensor& bias, const PoolOptions&, double p, std::uint64_t layer);

// Normalisation.
/// Options of batch_norm(), with PyTorch's defaults.
struct BatchNormOptions {
  double eps = 1e-5;  ///< added to the variance
  /// As PyTorch's: running = (1 - momentum) running + momentum batch (Keras' momentum is 1 minus this).
  double momentum = 0.1;
  bool relu = false;  ///< ReLU after the norm and the residual
};
/// Batch norm (Ioffe and Szegedy, arXiv 1502.03167): gamma (x - mean) / sqrt(variance + eps) + beta per channel; x
/// [..., C], gamma and beta [C]. In training (is_training()) it uses the statistics of the scope's rows, and moves
/// running_mean and running_var ([C], f32 or f64, not on the tape) towards them; the running variance is unbiased (n /
/// (n - 1)) as in PyTorch. In evaluation it uses the running statistics. residual: added before the ReLU; or undefined.
/// moments: the statistics of x if known; in training they are then used, and may be overwritten.
Tensor batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                  const Tensor& running_var, const BatchNormOptions& = {}, const Tensor& residual = {},
                  const ChannelStats& moments = {});
/// Layer norm (Ba et al., arXiv 1607.06450): gamma (x - mean) / sqrt(variance + eps) + beta over the last axis, with
/// the biased variance. x [..., C], gamma and beta [C] or undefined.
Tensor layer_norm(const Tensor& x, const Tensor& gamma = {}, const Tensor& beta = {}, double eps = 1e-5);
/// As above, over the last axes with these extents, which gamma and beta have too.
Tensor layer_norm_over(const Tensor& x, const Shape& last_axes, const Tensor& gamma = {}, const Tensor& beta = {},
                       double eps = 1e-5);
/// RMS norm (Zhang and Sennrich, arXiv 1910.07467): gamma x / sqrt(mean(x^2) + eps) over the last axis. x [..., C],
/// gamma [C] or undefined.
Tensor rms_norm(const Tensor& x, const Tensor& gamma = {}, double eps = 1e-5);
/// F.group_norm (Wu and He, arXiv 1803.08494): gamma (x - mean) / sqrt(variance + eps) + beta, with mean and biased
/// variance over each sample and each group of C / groups adjacent channels. x [N, ..., C], gamma and beta [C] or
/// undefined. With groups = C it is F.instance_norm without running statistics.
Tensor group_norm(const Tensor& x, Index groups, const Tensor& gamma = {}, const Tensor& beta = {}, double eps = 1e-5);
Tensor softmax(const Tensor&);                  ///< exp(x) / sum(exp(x)) over the last axis
Tensor log_softmax(const Tensor&);              ///< logarithm of softmax(), computed without overflow
Tensor softmax(const Tensor& x, int axis);      ///< over another axis; a negative axis counts from the last
Tensor log_softmax(const Tensor& x, int axis);  ///< over another axis; a negative axis counts from the last
/// Inverted dropout (Srivastava et al., JMLR 15, 2014): each element is kept with probability 1 - p and divided by 1 -
/// p, else 0. Identity in evaluation. x is [rows, ...], one row per sample of its batch. The mask is a function of
/// seed, step and sample ids (framework/tensor/batch.h), the layer's key, and the number of earlier calls of the layer
/// on this rank for this batch. Throws Error unless 0 <= p < 1, and for another number of rows than the batch's.
Tensor dropout(const Tensor& x, double p, std::uint64_t layer);
/// dropout() of whole channels: x [rows, ..., C], one draw per row and channel (F.dropout2d).
Tensor channel_dropout(const Tensor& x, double p, std::uint64_t layer);
/// dropout() of whole rows, one draw per row (stochastic depth, arXiv 1603.09382; timm's DropPath).
Tensor row_dropout(const Tensor& x, double p, std::uint64_t layer);

// Shape.
/// torch.cat: at least one part; parts have the same dtype and equal extents except along the axis (negative: from the
/// last).
Tensor concat(const std::vector<Tensor>& parts, int axis);
/// torch.split: consecutive parts of these sizes along the axis, copied. The sizes must add up to its extent.
std::vector<Tensor> split(const Tensor& x, const std::vector<Index>& sizes, int axis);
/// torch.select: x[:, 0] is select(x, 1, 0). Returns element `at` (negative: from the end) along an axis (negative:
/// from the last), which is removed. Throws Error if it does not exist.
Tensor select(const Tensor& x, int axis, Index at);
/// torch.unbind: all elements along an axis, in order: x[0], x[1], ... for axis 0.
std::vector<Tensor> unbind(const Tensor& x, int axis = 0);
/// As above, for an axis of extent N: auto [q, k, v] = unbind<3>(qkv). Throws Error for another extent.
template <std::size_t N>
std::array<Tensor, N> unbind(const Tensor& x, int axis = 0) {
  const std::vector<Tensor> parts = unbind(x, axis);
  check(parts.size() == N, "unbind", "{} parts are asked for, axis {} of {} has {}", N, axis, x.shape(), parts.size());
  std::array<Tensor, N> all;
  std::copy(parts.begin(), parts.end(), all.begin());
  return all;
}
/// torch.stack: at least one part; parts of the same shape and dtype, along a new axis (negative: from the last of the
/// result).
Tensor stack(const std::vector<Tensor>& parts, int axis = 0);
Tensor squeeze(const Tensor& x, int axis);    ///< removes an axis; throws Error unless its extent is 1
Tensor unsqueeze(const Tensor& x, int axis);  ///< inserts an axis of extent 1 (negative: from the last of the result)
/// torch.broadcast_to: x, of any type, broadcast along new axes in front and axes of extent 1.
Tensor expand(const Tensor& x, const Shape& shape);
/// x with two axes exchanged (torch.transpose).
Tensor transpose(const Tensor& x, int a, int b);
/// F.pad (constant): adds elements of this value before and after each axis. begin and end: one number per axis of x.
Tensor pad(const Tensor& x, const Shape& begin, const Shape& end, double value = 0);
/// What pad() adds. reflect: the elements mirrored at the outermost one, which is not repeated; replicate: the
/// outermost element; circular: the elements of the other end (F.pad).
enum class PadMode : std::uint8_t { reflect, replicate, circular };
/// As above, with elements of x. Throws Error if x has too few.
Tensor pad(const Tensor& x, const Shape& begin, const Shape& end, PadMode);
/// torch.index_select, or NumPy's x[ids] for axis 0. ids: i64 of any shape, whose axes replace x's axis (negative: from
/// the last) in the result. Any type. Throws Error for an id outside of [0, extent); on a GPU at the next
/// synchronization.
Tensor take(const Tensor& x, const Tensor& ids, int axis = 0);
/// NumPy's x[..., from:to:step, ...] along an axis (negative: from the last), copied. Negative positions count from the
/// end, and positions outside are clamped. Without `to` the slice ends at the end. Any type. Throws Error for a step
/// below 1.
Tensor slice(const Tensor& x, int axis, Index from, Index to = std::numeric_limits<Index>::max(), Index step = 1);
Tensor flip(const Tensor& x, const std::vector<int>& axes);  ///< torch.flip: reversed along these axes
Tensor roll(const Tensor& x, Index shift, int axis);         ///< torch.roll: element i moves to (i + shift) mod extent
/// torch.Tensor.repeat: times[i] copies one after another along axis i; times has x's rank.
Tensor repeat(const Tensor& x, const Shape& times);
/// Axis i of the result is axis order[i] of x (torch.permute).
Tensor permute(const Tensor& x, const Shape& order);
/// [N, spatial..., C] -> [N, C * spatial], with features in PyTorch's order (C outermost), so that the weights of a
/// following Linear are PyTorch's. Costs nothing if there are no spatial axes, or if each is 1.
Tensor flatten(const Tensor& x);
Tensor sum(const Tensor& x);   ///< torch.sum: a scalar of x's dtype, i64 for integers; 0 without elements
Tensor mean(const Tensor& x);  ///< torch.mean: a scalar; throws Error without elements
/// torch.sum, torch.mean or torch.amax over axes (negative: from the last), which stay with extent 1. Ties of amax
/// share the gradient equally. Throws Error for the mean or maximum of no elements.
Tensor reduce(const Tensor& x, ReduceKind, const std::vector<int>& axes);
// Reductions over axes (negative: from the last), which are removed, or stay with extent 1 if keep is set. Throw Error
// as reduce(). sum, amax and amin accept integers too.
Tensor sum(const Tensor& x, const std::vector<int>& axes, bool keep = false);   ///< torch.sum
Tensor mean(const Tensor& x, const std::vector<int>& axes, bool keep = false);  ///< torch.mean
Tensor amax(const Tensor& x, const std::vector<int>& axes, bool keep = false);  ///< torch.amax
Tensor amin(const Tensor& x, const std::vector<int>& axes, bool keep = false);  ///< torch.amin
Tensor max(const Tensor& x);  ///< amax() over all axes: a scalar; ties share the gradient equally
Tensor min(const Tensor& x);  ///< amin() over all axes: a scalar
/// torch.var: sum of squared deviations from the mean, divided by (number of elements - correction). Throws Error
/// unless that is positive.
Tensor var(const Tensor& x, const std::vector<int>& axes, bool keep = false, double correction = 1);
/// torch.std: square root of var().
Tensor standard_deviation(const Tensor& x, const std::vector<int>& axes, bool keep = false, double correction = 1);
Tensor norm(const Tensor& x, const std::vector<int>& axes, bool keep = false);  ///< square root of the sum of squares
Tensor norm(const Tensor& x);                                                   ///< over all axes: a scalar
/// torch.logsumexp: log(sum(exp(x))), without overflow.
Tensor logsumexp(const Tensor& x, const std::vector<int>& axes, bool keep = false);

}  // namespace trireme
