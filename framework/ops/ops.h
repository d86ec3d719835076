// Every op: a function from tensors to a tensor, recorded on the tape. Forward and backward stand side by side in
// framework/ops/. All are for f32, f64, bf16 and, on CUDA, f16 unless said otherwise. C is always the last axis.
// Operands that do not fit throw Error.
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

// Dtypes: operands are of one dtype, which the result has (to(DType) converts; nothing is promoted). Beside a tensor a
// number takes the tensor's dtype, and throws Error where an integer one does not have it. Comparisons give boolean,
// sums, products and cumulative sums of integers i64.

// Binary, elementwise, with NumPy broadcasting: extents that agree or are 1. Integers overflow into their lowest bits.
Tensor add(const Tensor& a, const Tensor& b);       ///< a + b (torch.add), with NumPy broadcasting
Tensor sub(const Tensor& a, const Tensor& b);       ///< a - b (torch.sub), with NumPy broadcasting
Tensor mul(const Tensor& a, const Tensor& b);       ///< a b by element (torch.mul), with NumPy broadcasting
Tensor div(const Tensor& a, const Tensor& b);       ///< a / b (torch.div), of a floating type
Tensor div_scalar(const Tensor& x, double number);  ///< x / number, of a floating type
/// torch.floor_divide: the largest integer not above a / b; gradient 0. Of integers 0 where b is 0.
Tensor floor_divide(const Tensor& a, const Tensor& b);
Tensor floor_divide(const Tensor& a, double b);
Tensor remainder(const Tensor& a, const Tensor& b);  ///< torch.remainder: a - b floor_divide(a, b), of b's sign
Tensor remainder(const Tensor& a, double b);
Tensor maximum(const Tensor& a, const Tensor& b);  ///< torch.maximum: ties share the gradient equally, NaN wins
Tensor minimum(const Tensor& a, const Tensor& b);  ///< torch.minimum: ties and NaN as in maximum()
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }  ///< add()
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }  ///< sub()
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }  ///< mul()
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }  ///< div()

// A tensor and a number, which is rounded to the type that x is computed in (floating types: f64, else f32).
Tensor scale(const Tensor& x, double factor);                                               ///< factor x
Tensor add_scalar(const Tensor& x, double number);                                          ///< x + number
inline Tensor operator+(const Tensor& x, double number) { return add_scalar(x, number); }   ///< add_scalar()
inline Tensor operator+(double number, const Tensor& x) { return add_scalar(x, number); }   ///< add_scalar()
inline Tensor operator-(const Tensor& x, double number) { return add_scalar(x, -number); }  ///< add_scalar() of -number
inline Tensor operator*(const Tensor& x, double factor) { return scale(x, factor); }        ///< scale()
inline Tensor operator*(double factor, const Tensor& x) { return scale(x, factor); }        ///< scale()
inline Tensor operator/(const Tensor& x, double number) { return div_scalar(x, number); }   ///< div_scalar()
// x = x + y, and so on: x is a new tensor from then on, and others that shared its block keep the old elements.
inline Tensor& operator+=(Tensor& x, const Tensor& y) { return x = x + y; }
inline Tensor& operator-=(Tensor& x, const Tensor& y) { return x = x - y; }
inline Tensor& operator*=(Tensor& x, const Tensor& y) { return x = x * y; }
inline Tensor& operator/=(Tensor& x, const Tensor& y) { return x = x / y; }
inline Tensor& operator+=(Tensor& x, double number) { return x = x + number; }
inline Tensor& operator-=(Tensor& x, double number) { return x = x - number; }
inline Tensor& operator*=(Tensor& x, double number) { return x = x * number; }
inline Tensor& operator/=(Tensor& x, double number) { return x = x / number; }

// Unary, elementwise, of a floating type; the formulas, as PyTorch's of the same names, are in
// kernels/formulas/pointwise.h. One with parameters throws Error for a parameter outside its stated range.
Tensor relu(const Tensor&);                                 ///< max(x, 0); gradient 0 at 0
Tensor leaky_relu(const Tensor&);                           ///< x, below 0 times 0.01
Tensor leaky_relu(const Tensor& x, double negative_slope);  ///< x, below 0 times negative_slope >= 0
Tensor elu(const Tensor&);                                  ///< elu(x, 1)
Tensor elu(const Tensor& x, double alpha);  ///< x, below 0 alpha (exp(x) - 1), alpha >= 0 (arXiv 1511.07289)
Tensor gelu(const Tensor&);                 ///< x Phi(x), exact, by erf (arXiv 1606.08415)
Tensor gelu_tanh(const Tensor&);            ///< GPT-2's approximation of gelu() by tanh (arXiv 1606.08415)
Tensor silu(const Tensor&);                 ///< x sigmoid(x) (arXiv 1702.03118)
Tensor mish(const Tensor&);                 ///< x tanh(softplus(x)) (arXiv 1908.08681)
Tensor hardswish(const Tensor&);            ///< x hardsigmoid(x) (arXiv 1905.02244)
Tensor hardsigmoid(const Tensor&);          ///< relu6(x + 3) / 6 (arXiv 1905.02244)
Tensor hardtanh(const Tensor& x, double low = -1, double high = 1);  ///< clamp(), but gradient 0 at low and high
Tensor relu6(const Tensor&);                                         ///< hardtanh(x, 0, 6)
Tensor clamp(const Tensor& x, double low, double high);  ///< x in [low, high], low <= high; gradient 1 at both
Tensor sigmoid(const Tensor&);                           ///< 1 / (1 + exp(-x))
Tensor tanh(const Tensor&);                              ///< hyperbolic tangent
Tensor softplus(const Tensor&);                          ///< softplus(x, 1)
Tensor softplus(const Tensor& x, double beta);  ///< log(1 + exp(beta x)) / beta, beta > 0, without PyTorch's threshold
Tensor softsign(const Tensor&);                 ///< x / (1 + |x|)
Tensor exp(const Tensor&);                      ///< e^x
Tensor log(const Tensor&);                      ///< natural logarithm; -inf at 0, NaN below
Tensor expm1(const Tensor&);                    ///< e^x - 1, exact near 0
Tensor log1p(const Tensor&);                    ///< log(1 + x), exact near 0
Tensor erf(const Tensor&);                      ///< the error function
Tensor sin(const Tensor&);                      ///< of x in radians
Tensor cos(const Tensor&);                      ///< of x in radians
Tensor pow(const Tensor& x, double exponent);   ///< x^exponent; NaN of x < 0 unless the exponent is an integer
Tensor floor(const Tensor&);                    ///< the next integer below, as a float; gradient 0
Tensor ceil(const Tensor&);                     ///< the next integer above, as a float; gradient 0
Tensor round(const Tensor&);                    ///< the nearest integer, ties to the even one; gradient 0
Tensor sign(const Tensor&);                     ///< -1, 0 or 1; gradient 0
Tensor sqrt(const Tensor&);                     ///< square root; NaN below 0
Tensor rsqrt(const Tensor&);                    ///< 1 / sqrt(x)
Tensor reciprocal(const Tensor&);               ///< 1 / x
Tensor square(const Tensor&);                   ///< x^2
Tensor abs(const Tensor&);                      ///< |x|, of integers, too; gradient 0 at 0
Tensor neg(const Tensor&);                      ///< -x, of integers, too
/// F.prelu: x, below 0 times slope, which is one number or one for each channel: [1] or [C] of x [..., C].
Tensor prelu(const Tensor& x, const Tensor& slope);
Tensor glu(const Tensor& x);     ///< F.glu: a sigmoid(b) of the halves a, b of the last axis (arXiv 1612.08083)
Tensor swiglu(const Tensor& x);  ///< silu(a) b of the halves a, b of the last axis (arXiv 2002.05202)
inline Tensor operator-(const Tensor& x) { return neg(x); }                                 ///< neg()
inline Tensor operator-(double number, const Tensor& x) { return neg(x) + number; }         ///< number - x
inline Tensor operator/(double number, const Tensor& x) { return number * reciprocal(x); }  ///< number / x

// Products.
/// torch.matmul of op(a) and op(b), op transposing the last two axes as the options say: [M, K] and [K, N] -> [M, N];
/// with more axes in front, which are broadcast, of each of the matrices; a vector [K] as [1, K] on the left and [K, 1]
/// on the right, without that axis in the result. Throws Error for MatMulOptions::accumulate.
Tensor matmul(const Tensor& a, const Tensor& b, const MatMulOptions& = {});
/// x w^T + bias: x [..., I], w [O, I], bias [O] or undefined -> [..., O]; relu fuses the activation.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias = {}, bool relu = false);
/// Statistics of each channel of a tensor [..., C]: f32, or f64 of an f64 tensor; undefined: not computed.
struct ChannelStats {
  Tensor mean,  ///< [C]
      m2;       ///< [C]: sum of squared deviations from the mean
};
/// Cross-correlation: x [N, spatial..., I], w [O, kernel..., I/groups], bias [O] or undefined, 1 to 3 spatial axes ->
/// [N, spatial'..., O], spatial' = floor((spatial + pad_begin + pad_end - dilation (kernel - 1) - 1) / stride) + 1.
/// residual: the output's shape, added before the ReLU; in evaluation only (nothing of it is recorded: add() has a
/// gradient). One that nobody else holds is overwritten. moments: set to the output's where they come with it for less
/// than batch_norm() would pay.
Tensor conv(const Tensor& x, const Tensor& w, const Tensor& bias = {}, const ConvOptions& = {}, Tensor residual = {},
            ChannelStats* moments = nullptr);

/// F.conv_transpose1d to 3d: the gradient of conv() by its input. x [N, spatial..., I], w [I, kernel..., O/groups],
/// bias [O] or undefined -> [N, spatial'..., O], spatial' = (spatial - 1) stride - pad_begin - pad_end + dilation
/// (kernel - 1) + 1 + output_pad, cells that output_pad adds behind each axis, less than the stride or the dilation.
/// ConvOptions::relu must not be set.
Tensor conv_transpose(const Tensor& x, const Tensor& w, const Tensor& bias = {}, const ConvOptions& = {},
                      const Extents& output_pad = {0, 0, 0});

// Pooling. With PoolOptions::ceil_mode the last window may end outside, by F.max_pool2d's rules.
/// F.max_pool1d to F.max_pool3d: x [N, spatial..., C], 1 to 3 spatial axes -> [N, spatial'..., C] with spatial' =
/// floor((spatial + pad_begin + pad_end - dilation (window - 1) - 1) / stride) + 1. Padding is smaller than the
/// (dilated) window. The first of equal elements gets the gradient. Throws Error for options that do not suit x.
Tensor max_pool(const Tensor& x, const PoolOptions&);
/// F.avg_pool1d to F.avg_pool3d, shapes as max_pool()'s: padding counts as PoolOptions::count_padding says. Throws
/// Error for a dilation, too.
Tensor avg_pool(const Tensor& x, const PoolOptions&);
/// [N, spatial..., C] -> [N, C]: mean over the spatial axes.
Tensor global_avg_pool(const Tensor& x);
/// [N, spatial..., C] -> [N, C]: maximum over the spatial axes; ties share the gradient equally, as in torch.amax.
Tensor global_max_pool(const Tensor& x);
/// F.adaptive_avg_pool1d to 3d: [N, spatial..., C] -> [N, size..., C], cell o of an axis the mean over cells floor(o in
/// / out) to ceil((o + 1) in / out). size: one extent per spatial axis.
Tensor adaptive_avg_pool(const Tensor& x, const Shape& size);
/// F.adaptive_max_pool1d to 3d: the largest of the same cells; the first of equals gets the gradient.
Tensor adaptive_max_pool(const Tensor& x, const Shape& size);
/// What interpolate() does; one of size and scale is set.
struct InterpolateOptions {
  Shape size = {};                            ///< extents of the result, one per spatial axis
  double scale = 0;                           ///< or the factor of each: floor(scale extent)
  ResampleMode mode = ResampleMode::nearest;  ///< or linear (bilinear, trilinear), area
  bool align_corners = false;                 ///< linear: as PyTorch's
};
/// F.interpolate: [N, spatial..., C] of 1 to 3 spatial axes -> [N, size..., C].
Tensor interpolate(const Tensor& x, const InterpolateOptions&);
/// dropout(max_pool(relu(x + bias))) in one pass, bias [C] or undefined; see kernels/contracts/pool.h and dropout().
/// Throws Error unless the windows tile: stride = window, no padding, no dilation, and at most 254 cells each.
Tensor bias_relu_pool_dropout(const Tensor& x, const Tensor& bias, const PoolOptions&, double p, std::uint64_t layer);

// Normalisation.
/// Options of batch_norm(), with PyTorch's defaults.
struct BatchNormOptions {
  double eps = 1e-5;      ///< added to the variance
  double momentum = 0.1;  ///< PyTorch's: running = (1 - momentum) running + momentum batch (1 minus that of Keras)
  bool relu = false;      ///< ReLU after the norm, and after the residual
};
/// gamma (x - mean) / sqrt(variance + eps) + beta per channel (Ioffe and Szegedy, arXiv 1502.03167): x [..., C], gamma
/// and beta [C]. Training (is_training): statistics over the scope; running_mean, running_var ([C], f32 or f64, not on
/// the tape) move towards them, the variance unbiased (n/(n-1)) as in PyTorch. Evaluation: uses them. residual is added
/// before ReLU, or undefined. moments: of x, if known; in training they are not taken again, but may be written over.
Tensor batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                  const Tensor& running_var, const BatchNormOptions& = {}, const Tensor& residual = {},
                  const ChannelStats& moments = {});
/// gamma (x - mean) / sqrt(variance + eps) + beta over the last axis, variance biased (Ba et al., arXiv 1607.06450):
/// x [..., C], gamma and beta [C] or undefined.
Tensor layer_norm(const Tensor& x, const Tensor& gamma = {}, const Tensor& beta = {}, double eps = 1e-5);
/// The same over the last axes, as many as gamma or beta have: both of their extents.
Tensor layer_norm_over(const Tensor& x, const Shape& last_axes, const Tensor& gamma = {}, const Tensor& beta = {},
                       double eps = 1e-5);
/// gamma x / sqrt(mean(x^2) + eps) over the last axis (Zhang and Sennrich, arXiv 1910.07467): x [..., C], gamma [C] or
/// undefined.
Tensor rms_norm(const Tensor& x, const Tensor& gamma = {}, double eps = 1e-5);
/// F.group_norm (Wu and He, arXiv 1803.08494): x [N, ..., C], of each sample and group of C / groups channels that
/// follow each other: gamma (x - mean) / sqrt(variance + eps) + beta, variance biased; gamma and beta [C] or undefined.
/// F.instance_norm without running statistics: groups = C.
Tensor group_norm(const Tensor& x, Index groups, const Tensor& gamma = {}, const Tensor& beta = {}, double eps = 1e-5);
Tensor softmax(const Tensor&);                  ///< exp(x) / sum(exp(x)) over the last axis
Tensor log_softmax(const Tensor&);              ///< its logarithm, computed without overflow
Tensor softmax(const Tensor& x, int axis);      ///< over another axis (negative: from the last)
Tensor log_softmax(const Tensor& x, int axis);  ///< likewise
/// Each element is kept with probability 1 - p, and divided by it (Srivastava et al., JMLR 15, 2014). The mask is a
/// function of seed, step and sample id of x's batch (framework/tensor/batch.h), of the layer, and of how often this
/// rank has called it for that batch. Identity in evaluation. x is [rows, ...], one row per sample of its batch.
/// Throws Error unless 0 <= p < 1, and for rows other than the batch's.
Tensor dropout(const Tensor& x, double p, std::uint64_t layer);
/// dropout() of whole channels: x [rows, ..., C], one draw for each row and channel (F.dropout2d).
Tensor channel_dropout(const Tensor& x, double p, std::uint64_t layer);
/// dropout() of whole rows: one draw for each (stochastic depth, arXiv 1603.09382; timm's DropPath).
Tensor row_dropout(const Tensor& x, double p, std::uint64_t layer);

// Shape.
/// torch.cat: parts of one dtype that agree in all extents but the axis' (negative: from the last). At least one.
Tensor concat(const std::vector<Tensor>& parts, int axis);
/// torch.split: parts of so many elements along the axis, copied; sizes add up to its extent.
std::vector<Tensor> split(const Tensor& x, const std::vector<Index>& sizes, int axis);
/// torch.select: element `at` (negative: from the end) of an axis (negative: from the last), which goes: x[:, 0] is
/// select(x, 1, 0). Throws Error where there is none.
Tensor select(const Tensor& x, int axis, Index at);
/// torch.unbind: all of them, in order: x[0], x[1], ... for axis 0.
std::vector<Tensor> unbind(const Tensor& x, int axis = 0);
/// The same of an axis of N: auto [q, k, v] = unbind<3>(qkv). Throws Error for another extent.
template <std::size_t N>
std::array<Tensor, N> unbind(const Tensor& x, int axis = 0) {
  const std::vector<Tensor> parts = unbind(x, axis);
  check(parts.size() == N, "unbind", "{} parts are asked for, axis {} of {} has {}", N, axis, x.shape(), parts.size());
  std::array<Tensor, N> all;
  std::copy(parts.begin(), parts.end(), all.begin());
  return all;
}
/// torch.stack: parts of one shape and dtype along a new axis (negative: from the last of the result). At least one.
Tensor stack(const std::vector<Tensor>& parts, int axis = 0);
Tensor squeeze(const Tensor& x, int axis);    ///< without this axis. Throws Error unless its extent is 1
Tensor unsqueeze(const Tensor& x, int axis);  ///< with a new axis of extent 1 there (negative: from the last)
/// torch.broadcast_to: x, of any type, repeated along new axes in front and axes of extent 1.
Tensor expand(const Tensor& x, const Shape& shape);
/// x with two axes exchanged (torch.transpose).
Tensor transpose(const Tensor& x, int a, int b);
/// Elements of that value before and after each axis; begin and end have x's rank.
Tensor pad(const Tensor& x, const Shape& begin, const Shape& end, double value = 0);
/// What pad() puts before and after an axis: its elements mirrored at the outermost one, which stays single; that one
/// over and over; or those of its other end (F.pad's reflect, replicate, circular).
enum class PadMode : std::uint8_t { reflect, replicate, circular };
/// The same with elements of x. Throws Error for more than there are.
Tensor pad(const Tensor& x, const Shape& begin, const Shape& end, PadMode);
/// torch.index_select, and x[ids] of NumPy for axis 0: ids, i64 of any shape, stand in the result where x's axis
/// (negative: from the last) was. Any type. Throws Error for an id outside of [0, extent), on a GPU at the next wait.
Tensor take(const Tensor& x, const Tensor& ids, int axis = 0);
/// x[..., from:to:step, ...] of NumPy along an axis (negative: from the last), copied: negative positions count from
/// the end, those outside are cut off; without `to` up to the end. Any type. Throws Error for a step below 1.
Tensor slice(const Tensor& x, int axis, Index from, Index to = std::numeric_limits<Index>::max(), Index step = 1);
Tensor flip(const Tensor& x, const std::vector<int>& axes);  ///< torch.flip: reversed along these axes
Tensor roll(const Tensor& x, Index shift, int axis);         ///< torch.roll: element i comes to (i + shift) mod extent
/// torch.Tensor.repeat: so many copies behind each other along each axis; times has x's rank.
Tensor repeat(const Tensor& x, const Shape& times);
/// Axis i of the result is axis order[i] of x (torch.permute).
Tensor permute(const Tensor& x, const Shape& order);
/// [N, spatial..., C] -> [N, C * spatial], features in PyTorch's order (C outermost), so that the weights of a Linear
/// that follows are PyTorch's. Free when there are no spatial axes, or each is 1.
Tensor flatten(const Tensor& x);
Tensor sum(const Tensor& x);   ///< torch.sum: scalar of x's dtype, i64 of integers; 0 of no elements
Tensor mean(const Tensor& x);  ///< torch.mean: scalar; throws Error for no elements
/// torch.sum, mean or amax over axes (negative: from the last), which stay with extent 1. Ties of amax share the
/// gradient equally. Throws Error for the mean or maximum of no elements.
Tensor reduce(const Tensor& x, ReduceKind, const std::vector<int>& axes);
// The same, of axes (negative: from the last) that stay with extent 1 if keep is set, and else go. Throw Error as
// reduce(). sum, amax and amin are for integers, too.
Tensor sum(const Tensor& x, const std::vector<int>& axes, bool keep = false);   ///< torch.sum
Tensor mean(const Tensor& x, const std::vector<int>& axes, bool keep = false);  ///< torch.mean
Tensor amax(const Tensor& x, const std::vector<int>& axes, bool keep = false);  ///< torch.amax
Tensor amin(const Tensor& x, const std::vector<int>& axes, bool keep = false);  ///< torch.amin
Tensor max(const Tensor& x);  ///< amax() of all elements: a scalar; ties share the gradient equally
Tensor min(const Tensor& x);  ///< amin() of all elements: a scalar
/// torch.var: sum of squared deviations from the mean, divided by the count less `correction`. Throws Error where that
/// leaves nothing.
Tensor var(const Tensor& x, const std::vector<int>& axes, bool keep = false, double correction = 1);
/// torch.std: square root of var().
Tensor standard_deviation(const Tensor& x, const std::vector<int>& axes, bool keep = false, double correction = 1);
Tensor norm(const Tensor& x, const std::vector<int>& axes, bool keep = false);  ///< square root of the sum of squares
Tensor norm(const Tensor& x);                                                   ///< over all axes: a scalar
/// torch.logsumexp: log(sum(exp(x))), without overflow.
Tensor logsumexp(const Tensor& x, const std::vector<int>& axes, bool keep = false);

}  // namespace trireme
