// Every op: a function from tensors to a tensor, recorded on the tape. Forward and backward stand side by side in
// framework/ops/. All are for f32, f64, bf16 and, on CUDA, f16 unless said otherwise. C is always the last axis.
// Operands that do not fit throw Error.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "framework/tensor/tensor.h"
#include "kernels/contracts/conv.h"
#include "kernels/contracts/loss.h"
#include "kernels/contracts/matmul.h"
#include "kernels/contracts/move.h"
#include "kernels/contracts/pool.h"

namespace trireme {

// Binary, elementwise, with NumPy broadcasting: operands of one floating type, extents that agree or are 1.
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, const Tensor& b);  ///< ties share the gradient equally, as in PyTorch; NaN wins
Tensor minimum(const Tensor& a, const Tensor& b);
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }

// A tensor of a floating type and a number, which is rounded to the type that x is computed in (f64, else f32).
Tensor scale(const Tensor& x, double factor);       ///< factor x
Tensor add_scalar(const Tensor& x, double number);  ///< x + number
inline Tensor operator+(const Tensor& x, double number) { return add_scalar(x, number); }
inline Tensor operator+(double number, const Tensor& x) { return add_scalar(x, number); }
inline Tensor operator-(const Tensor& x, double number) { return add_scalar(x, -number); }
inline Tensor operator*(const Tensor& x, double factor) { return scale(x, factor); }
inline Tensor operator*(double factor, const Tensor& x) { return scale(x, factor); }
inline Tensor operator/(const Tensor& x, double number) { return scale(x, 1 / number); }

// Unary, elementwise, of a floating type; the formulas, as PyTorch's of the same names, are in
// kernels/formulas/pointwise.h. One with parameters throws Error for a parameter outside its stated range.
Tensor relu(const Tensor&);
Tensor leaky_relu(const Tensor&);                           ///< negative_slope 0.01
Tensor leaky_relu(const Tensor& x, double negative_slope);  ///< negative_slope >= 0
Tensor elu(const Tensor&);                                  ///< alpha 1
Tensor elu(const Tensor& x, double alpha);                  ///< alpha >= 0
Tensor gelu(const Tensor&);                                 ///< exact, by erf
Tensor silu(const Tensor&);
Tensor hardswish(const Tensor&);
Tensor hardsigmoid(const Tensor&);
Tensor hardtanh(const Tensor& x, double low = -1, double high = 1);  ///< low <= high; no gradient at the bounds
Tensor relu6(const Tensor&);                                         ///< hardtanh(x, 0, 6)
Tensor clamp(const Tensor& x, double low, double high);              ///< low <= high; gradient 1 at the bounds
Tensor sigmoid(const Tensor&);
Tensor tanh(const Tensor&);
Tensor softplus(const Tensor&);                 ///< beta 1
Tensor softplus(const Tensor& x, double beta);  ///< log(1 + exp(beta x)) / beta, beta > 0
Tensor softsign(const Tensor&);
Tensor exp(const Tensor&);
Tensor log(const Tensor&);
Tensor sqrt(const Tensor&);
Tensor rsqrt(const Tensor&);
Tensor reciprocal(const Tensor&);
Tensor square(const Tensor&);
Tensor abs(const Tensor&);
Tensor neg(const Tensor&);

// Products.
/// op(a) op(b), op transposing as the options say: [M, K] and [K, N] -> [M, N], or of B matrices each, [B, M, K] and
/// [B, K, N] -> [B, M, N].
Tensor matmul(const Tensor& a, const Tensor& b, const MatMulOptions& = {});
/// x w^T + bias: x [..., I], w [O, I], bias [O] or undefined -> [..., O]; relu fuses the activation.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias = {}, bool relu = false);
/// Of each channel of a tensor the mean and the sum of squared deviations from it; undefined: nobody has them.
struct ChannelStats {
  Tensor mean, m2;
};
/// Cross-correlation: x [N, spatial..., I], w [O, kernel..., I/groups], bias [O] or undefined, 1 to 3 spatial axes ->
/// [N, spatial'..., O], spatial' = floor((spatial + pad_begin + pad_end - dilation (kernel - 1) - 1) / stride) + 1.
/// residual: the output's shape, added before the ReLU; in evaluation only (nothing of it is recorded: add() has a
/// gradient). One that nobody else holds is overwritten. moments: set to the output's where they come with it for less
/// than batch_norm() would pay.
Tensor conv(const Tensor& x, const Tensor& w, const Tensor& bias = {}, const ConvOptions& = {}, Tensor residual = {},
            ChannelStats* moments = nullptr);

// Pooling. x [N, spatial..., C], 1 to 3 spatial axes -> [N, spatial'..., C] with spatial' = floor((spatial + pad_begin
// + pad_end - dilation (window - 1) - 1) / stride) + 1. Padding is smaller than the (dilated) window.
Tensor max_pool(const Tensor& x, const PoolOptions&);  ///< the first of equal elements gets the gradient
Tensor avg_pool(const Tensor& x, const PoolOptions&);  ///< padding counts as PoolOptions::count_padding says
/// [N, spatial..., C] -> [N, C].
Tensor global_avg_pool(const Tensor& x);
Tensor global_max_pool(const Tensor& x);
/// dropout(max_pool(relu(x + bias))) in one pass; see kernels/contracts/pool.h and dropout().
Tensor bias_relu_pool_dropout(const Tensor& x, const Tensor& bias, const PoolOptions&, double p, std::uint64_t layer);

// Normalisation.
struct BatchNormOptions {
  double eps = 1e-5;      ///< added to the variance
  double momentum = 0.1;  ///< PyTorch's: running = (1 - momentum) running + momentum batch (1 minus that of Keras)
  bool relu = false;
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
Tensor softmax(const Tensor&);      ///< exp(x) / sum(exp(x)) over the last axis
Tensor log_softmax(const Tensor&);  ///< its logarithm, computed without overflow
/// Each element is kept with probability 1 - p, and divided by it (Srivastava et al., JMLR 15, 2014). The mask is a
/// function of seed, step and sample id of x's batch (framework/tensor/batch.h), of the layer, and of how often the
/// layer has been called for that batch. Identity in evaluation. x is [rows, ...], one row per sample of its batch.
Tensor dropout(const Tensor& x, double p, std::uint64_t layer);

// Losses: scalars. The sum over the rows at hand divided by the rows of the *global* batch (BatchContext of the
// prediction, or of the target), so that the shares of all ranks add up. Several rows per sample ([B * T, C] of B
// sequences) are counted as such; a part of a batch's rows is refused where ranks share the batch.
/// Of -log_softmax(logits) at the label: logits [..., C], labels i64 [...] in [0, C) or -100, which counts for nothing.
/// Throws Error for any other label; on a GPU at the next wait.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels);
/// A loss is a function of (prediction, target); this makes one with label smoothing or an ignored label.
using Loss = std::function<Tensor(const Tensor& prediction, const Tensor& target)>;
Loss cross_entropy_with(const CrossEntropyOptions&);
/// Mean of (prediction - target)^2 over all elements of the global batch; two tensors of one shape.
Tensor mse_loss(const Tensor& prediction, const Tensor& target);

// Shape.
/// Parts that agree in all extents but the axis' (negative: from the last), one behind the other. At least one.
Tensor concat(const std::vector<Tensor>& parts, int axis);
/// Parts of so many elements along the axis; sizes add up to its extent.
std::vector<Tensor> split(const Tensor& x, const std::vector<Index>& sizes, int axis);
/// Zeros before and after each axis; begin and end have x's rank.
Tensor pad(const Tensor& x, const Shape& begin, const Shape& end);
/// Axis i of the result is axis order[i] of x (torch.permute).
Tensor permute(const Tensor& x, const Shape& order);
/// [N, spatial..., C] -> [N, C * spatial], features in PyTorch's order (C outermost), so that the weights of a Linear
/// that follows are PyTorch's. Free when there are no spatial axes, or each is 1.
Tensor flatten(const Tensor& x);
Tensor sum(const Tensor& x);                                               ///< scalar
Tensor mean(const Tensor& x);                                              ///< scalar
Tensor reduce(const Tensor& x, ReduceKind, const std::vector<int>& axes);  ///< the axes stay, with extent 1
Tensor argmax(const Tensor& x);                                            ///< last axis, i64, no gradient

}  // namespace trireme
