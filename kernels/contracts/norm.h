// Batch, layer and group normalisation. Batch norm is four kernels, so that its statistics may be summed over a group
// of ranks between them (scope group or global) with the same code that serves one rank. x, y, dx, dy and residual have
// one shape [..., C] and one floating type; statistics and their gradients are f32, f64 for f64. Throw Error for
// operands that do not fit. Batch norm: Ioffe & Szegedy, arXiv 1502.03167; layer norm: Ba et al., arXiv 1607.06450.
#pragma once
#include "kernels/core/view.h"

namespace trireme {

namespace kernel {

/// mean [C] and m2 [C] (sum of squared deviations from mean) of x [..., C]; two passes or Welford, never E[x^2]-E[x]^2
/// (ConvMoments may, for narrow types).
struct BatchNormMoments {
  static constexpr char name[] = "batch_norm_moments";  ///< in errors, profiles and census()
  /// mean and m2 are outputs.
  using Fn = void(View mean, View m2, View x);
};
/// rstd [C] = 1 / sqrt(m2 / count + eps). If given, running_mean and running_var [C] (f32 or f64) move by momentum
/// towards mean and the unbiased m2 / max(count - 1, 1). Operands are not checked.
struct BatchNormFinish {
  static constexpr char name[] = "batch_norm_finish";  ///< in errors, profiles and census()
  /// rstd is the output; running_mean and running_var are updated, or View{}.
  using Fn = void(View rstd, View running_mean, View running_var, View mean, View m2, double count, double eps,
                  double momentum);
};
/// mean and m2 [C] of all rows together, and count [1] f64 of them. parts [ranks, 1 + 2 C] f64: each rank's count, mean
/// and m2, merged in this order (Chan, Golub & LeVeque 1979), so that nothing cancels and all ranks get the same bits.
/// Without rows: zeros.
struct BatchNormMerge {
  static constexpr char name[] = "batch_norm_merge";  ///< in errors, profiles and census()
  /// mean, m2 and count are outputs.
  using Fn = void(View mean, View m2, View count, View parts);
};
/// y = (x - mean) * rstd * gamma + beta (+ residual), then ReLU if asked. residual: x's shape, or none.
struct BatchNormApply {
  static constexpr char name[] = "batch_norm_apply";  ///< in errors, profiles and census()
  /// y is the output; residual may be View{}.
  using Fn = void(View y, View x, View mean, View rstd, View gamma, View beta, View residual, bool relu);
};
/// dgamma = sum dz * xhat, dbeta = sum dz (overwritten). dz is what of dy a ReLU behind the norm let through: without
/// one, dy (neither beta nor y given); with one, dy where the output was positive. With beta (and gamma) that is found
/// again from x, and nothing is kept for it; after a residual was added it is read off the output y, and dz is written
/// (dy's own block will do).
struct BatchNormBackwardReduce {
  static constexpr char name[] = "batch_norm_backward_reduce";  ///< in errors, profiles and census()
  /// dgamma, dbeta and (with y) dz are outputs; beta, y: View{} as described above.
  using Fn = void(View dgamma, View dbeta, View dz, View dy, View x, View mean, View rstd, View gamma, View beta,
                  View y);
};
/// dx = gamma rstd (dz - (sum_dz + xhat sum_dz_xhat) / count); dx may be dz's own block. With beta, dz is still to be
/// masked, as above. sum_*: over the whole scope; count: rows in the scope. For statistics that were constants (eval
/// mode) pass empty sums.
struct BatchNormBackwardApply {
  static constexpr char name[] = "batch_norm_backward_apply";  ///< in errors, profiles and census()
  /// dx is the output; beta and the sums may be View{}.
  using Fn = void(View dx, View dz, View x, View mean, View rstd, View gamma, View beta, View sum_dz_xhat, View sum_dz,
                  double count);
};
/// Over the last axis: y = (x - mean) * rstd * gamma + beta. mean, rstd [rows] are outputs. gamma, beta [C] or none.
/// Without center the mean is taken for 0: RMS norm (Zhang and Sennrich, arXiv 1910.07467).
struct LayerNorm {
  static constexpr char name[] = "layer_norm";  ///< in errors, profiles and census()
  /// y, mean and rstd are outputs; gamma and beta may be View{}.
  using Fn = void(View y, View mean, View rstd, View x, View gamma, View beta, double eps, bool center);
};
/// dx = rstd (g - mean_c g - xhat mean_c (g xhat)), g = dy gamma, xhat = (x - mean) rstd; without center there is no
/// mean_c g.
struct LayerNormBackwardInput {
  static constexpr char name[] = "layer_norm_backward_input";  ///< in errors, profiles and census()
  /// dx is the output; gamma may be View{}.
  using Fn = void(View dx, View dy, View x, View mean, View rstd, View gamma, bool center);
};
/// dgamma [C] (+)= sum over rows of dy xhat; dbeta [C] (+)= sum over rows of dy; either may be none.
struct LayerNormBackwardWeight {
  static constexpr char name[] = "layer_norm_backward_weight";  ///< in errors, profiles and census()
  /// dgamma and dbeta are outputs, or View{}; accumulate adds to both.
  using Fn = void(View dgamma, View dbeta, View dy, View x, View mean, View rstd, bool accumulate);
};
/// Group norm (Wu and He, arXiv 1803.08494) of x [N, cells..., C], in G groups of C / G channels that follow each
/// other: y = (x - mean) * rstd * gamma + beta, mean and biased variance over a sample's cells and a group's channels.
/// gamma, beta [C] of the statistics' type, or none.
struct GroupNorm {
  static constexpr char name[] = "group_norm";  ///< in errors, profiles and census()
  /// y, mean [N, G] and rstd [N, G] are outputs; gamma and beta may be View{}.
  using Fn = void(View y, View mean, View rstd, View x, View gamma, View beta, double eps);
};
/// Sums over the cells of each sample, of dy and of dy xhat, xhat = (x - mean) rstd: over samples they add up to the
/// gradients of beta and gamma. And dx = rstd (dy gamma - (S + xhat T) / count), S and T the sums over a group of gamma
/// sum_dy and gamma sum_dy_xhat, count the elements of a group.
struct GroupNormBackward {
  static constexpr char name[] = "group_norm_backward";  ///< in errors, profiles and census()
  /// sum_dy and sum_dy_xhat [N, C], of the statistics' type, and dx are outputs; dx and gamma may be View{}.
  using Fn = void(View sum_dy, View sum_dy_xhat, View dx, View dy, View x, View mean, View rstd, View gamma);
};

}  // namespace kernel
}  // namespace trireme
