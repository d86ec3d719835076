// Contracts of batch norm (Ioffe & Szegedy, arXiv 1502.03167), layer norm (Ba et al., arXiv 1607.06450) and group norm.
// Batch norm is split into several kernels, so that ranks can sum statistics between them (scope group or global) with
// the same code as one rank. x, y, dx, dy and residual have the same shape [..., C] and floating type; statistics and
// their gradients are f32, or f64 for f64. Kernels throw Error for operands that do not fit.
#pragma once
#include "kernels/core/view.h"

namespace trireme {

namespace kernel {

/// mean [C] and m2 [C] (sum of squared deviations from mean) of x [..., C], in two passes or by Welford's method, never
/// by E[x^2] - E[x]^2 (only ConvMoments may use that, for bf16 and f16).
struct BatchNormMoments {
  static constexpr char name[] = "batch_norm_moments";  ///< in errors, profiles and census()
  /// mean and m2 are outputs.
  using Fn = void(View mean, View m2, View x);
};
/// rstd [C] = 1 / sqrt(m2 / count + eps). If given, running_mean and running_var [C] (f32 or f64) move by the factor
/// momentum towards mean and the unbiased variance m2 / max(count - 1, 1). Operands are not checked.
struct BatchNormFinish {
  static constexpr char name[] = "batch_norm_finish";  ///< in errors, profiles and census()
  /// rstd is the output; running_mean and running_var are updated, or View{}.
  using Fn = void(View rstd, View running_mean, View running_var, View mean, View m2, double count, double eps,
                  double momentum);
};
/// mean and m2 [C] of the rows of all ranks, and their number count [1] (f64). parts [ranks, 1 + 2 C] (f64) holds each
/// rank's count, mean and m2. They are merged in the order of ranks (Chan, Golub & LeVeque 1979), without cancellation,
/// so that all ranks get the same bits. Zeros if there are no rows.
struct BatchNormMerge {
  static constexpr char name[] = "batch_norm_merge";  ///< in errors, profiles and census()
  /// mean, m2 and count are outputs.
  using Fn = void(View mean, View m2, View count, View parts);
};
/// y = (x - mean) * rstd * gamma + beta (+ residual), followed by ReLU if relu. residual: x's shape, or none.
struct BatchNormApply {
  static constexpr char name[] = "batch_norm_apply";  ///< in errors, profiles and census()
  /// y is the output; residual may be View{}.
  using Fn = void(View y, View x, View mean, View rstd, View gamma, View beta, View residual, bool relu);
};
/// dgamma = sum dz * xhat, dbeta = sum dz (both overwritten), where dz is the gradient before a ReLU that follows the
/// norm. Without a ReLU dz = dy (beta and y are View{}). With a ReLU dz = dy where the output was positive, else 0:
/// given beta and gamma, the sign is recomputed from x; given the output y (after a residual), it is read from y and dz
/// is written, possibly to dy's block.
struct BatchNormBackwardReduce {
  static constexpr char name[] = "batch_norm_backward_reduce";  ///< in errors, profiles and census()
  /// dgamma, dbeta and (with y) dz are outputs; beta and y may be View{} as described above.
  using Fn = void(View dgamma, View dbeta, View dz, View dy, View x, View mean, View rstd, View gamma, View beta,
                  View y);
};
/// dx = gamma rstd (dz - (sum_dz + xhat sum_dz_xhat) / count). dx may be the same block as dz. With beta, dz is dy and
/// is masked here, as above. The sums are over the whole scope, and count is its number of rows. Pass empty sums if the
/// statistics are constants (eval mode).
struct BatchNormBackwardApply {
  static constexpr char name[] = "batch_norm_backward_apply";  ///< in errors, profiles and census()
  /// dx is the output; beta and the sums may be View{}.
  using Fn = void(View dx, View dz, View x, View mean, View rstd, View gamma, View beta, View sum_dz_xhat, View sum_dz,
                  double count);
};
/// Layer norm over the last axis: y = (x - mean) * rstd * gamma + beta. mean and rstd [rows] are outputs; gamma and
/// beta [C] or none. Without center the mean is taken as 0: RMS norm (Zhang and Sennrich, arXiv 1910.07467).
struct LayerNorm {
  static constexpr char name[] = "layer_norm";  ///< in errors, profiles and census()
  /// y, mean and rstd are outputs; gamma and beta may be View{}.
  using Fn = void(View y, View mean, View rstd, View x, View gamma, View beta, double eps, bool center);
};
/// dx = rstd (g - mean_c g - xhat mean_c (g xhat)), g = dy gamma, xhat = (x - mean) rstd. Without center the term
/// mean_c g is absent.
struct LayerNormBackwardInput {
  static constexpr char name[] = "layer_norm_backward_input";  ///< in errors, profiles and census()
  /// dx is the output; gamma may be View{}.
  using Fn = void(View dx, View dy, View x, View mean, View rstd, View gamma, bool center);
};
/// dgamma [C] (+)= sum over rows of dy xhat; dbeta [C] (+)= sum over rows of dy; either may be absent.
struct LayerNormBackwardWeight {
  static constexpr char name[] = "layer_norm_backward_weight";  ///< in errors, profiles and census()
  /// dgamma and dbeta are outputs, or View{}; with accumulate the gradients are added to both.
  using Fn = void(View dgamma, View dbeta, View dy, View x, View mean, View rstd, bool accumulate);
};
/// Group norm (Wu and He, arXiv 1803.08494) of x [N, cells..., C], in G groups of C / G adjacent channels: y = (x -
/// mean) * rstd * gamma + beta, with mean and biased variance over the cells of a sample and the channels of a group.
/// gamma and beta [C] have the statistics' type, or are absent.
struct GroupNorm {
  static constexpr char name[] = "group_norm";  ///< in errors, profiles and census()
  /// y, mean [N, G] and rstd [N, G] are outputs; gamma and beta may be View{}.
  using Fn = void(View y, View mean, View rstd, View x, View gamma, View beta, double eps);
};
/// sum_dy and sum_dy_xhat: sums over the cells of each sample of dy and dy xhat, xhat = (x - mean) rstd. Summed over
/// samples they are the gradients of beta and gamma. dx = rstd (dy gamma - (S + xhat T) / count). S and T are the sums
/// over a group of gamma sum_dy and gamma sum_dy_xhat; count is the number of elements of a group.
struct GroupNormBackward {
  static constexpr char name[] = "group_norm_backward";  ///< in errors, profiles and census()
  /// sum_dy and sum_dy_xhat [N, C] (the statistics' type) and dx are outputs; dx and gamma may be View{}.
  using Fn = void(View sum_dy, View sum_dy_xhat, View dx, View dy, View x, View mean, View rstd, View gamma);
};

}  // namespace kernel
}  // namespace trireme
