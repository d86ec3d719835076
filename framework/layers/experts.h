// MixtureOfExperts: an MLP for transformers of which each token uses a part.
#pragma once
#include "framework/layers/linear.h"
#include "framework/ops/experts.h"

namespace trireme {

/// Options of a MixtureOfExperts.
struct MixtureOptions {
  Index experts = 8,                           ///< E, at least 1
      top_k = 2;                               ///< K: experts of a token, in [1, E]
  Tensor (*activation)(const Tensor&) = silu;  ///< between the products of an expert
  bool gated = true;                           ///< whether experts have a w3 (SwiGLU: arXiv 2002.05202)
  Index shared = 0;                            ///< hidden elements of one more expert, which all tokens use; 0: none
  /// Capacity factor: of each sample an expert takes at most ceil(capacity K T / E) of the T tokens, those with the
  /// highest scores (equal ones: the first); the others go without it (GShard, whose groups are samples here, so that
  /// the division of the batch changes nothing). x is [N, ..., C]. 0: experts take all tokens.
  double capacity = 0;
  /// Weight of the sequence-wise balance loss (DeepSeek-V3, arXiv 2412.19437, section 2.1.2), which is the same for any
  /// division of the batch: for each sample the sum over e of f_e P_e, where f_e is E / K times the share of its tokens
  /// that go to expert e, and P_e the mean score; the mean over the samples of the global batch. x is [N, ..., C].
  double balance = 0;
  /// Weight of the Switch loss (Fedus et al., arXiv 2101.03961, section 2.2): as balance, but with f_e and P_e of the
  /// whole global batch. The counts of all ranks are summed in forward. With micro-batches, and with
  /// norm_scope=local or group, a forward has the counts of a part of the batch, so forward throws Error.
  double switch_balance = 0;
  /// Step by which a bias of each expert, which counts for the choice alone, moves towards equal loads: up if the
  /// expert had fewer tokens than the mean in the last step, down if more (Wang et al., arXiv 2408.15664). Loads are
  /// counts of all ranks, exact while an expert's tokens in a step times the ranks are at most 2^24. 0: no bias.
  double bias_rate = 0;
  Init init = Init::normal(0.02);     ///< of the router and of w1 and w3
  Init init_w2 = Init::normal(0.02);  ///< of w2
};

/// x [..., C] -> the same shape: a router scores the experts for each token by softmax, in f32 (f64 for f64 data); the
/// token goes through the K with the highest scores (equal ones: the lowest index first), whose results are added with
/// these scores, divided by their sum unless K is 1. Names are Mixtral's: "gate.weight" [E, C], "experts.*.w1.weight".
/// Strategy experts() divides the experts over ranks. The shared expert's result is added. An expert may get no token.
struct MixtureOfExperts {
  /// width: C; hidden: F, the hidden elements of each expert. Throws Error for sizes below 1 and a top_k outside of
  /// [1, E].
  MixtureOfExperts(Index width, Index hidden, const MixtureOptions& = {});
  Tensor operator()(const Tensor& x) const;
  /// Visits "gate.weight", "experts.*.w1.weight", w2 and w3, "shared_experts.w1.weight" and so on, and the buffers
  /// "gate.e_score_correction_bias" and "gate.load".
  void visit(const StateVisitor& v);

  MixtureOptions options;
  Linear gate;  ///< the router, without bias
  ExpertWeights weights;
  std::vector<Linear> shared;  ///< w1, w2 and, if gated, w3 of the shared expert; none
  Tensor bias,                 ///< [E], added to scores for the choice; undefined without a bias_rate
      load;  ///< [E + 1]: tokens of each expert in the last step, then the number of that step modulo 4096, plus 1

 private:
  void move_bias(const Tensor& x) const;
  void keep(const Tensor& counts, const Tensor& x) const;
};

}  // namespace trireme
