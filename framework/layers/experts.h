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
  Init init = Init::normal(0.02);              ///< of the router and of w1 and w3
  Init init_w2 = Init::normal(0.02);           ///< of w2
};

/// x [..., C] -> the same shape: a router scores the experts for each token by softmax, in f32 (f64 for f64 data); the
/// token goes through the K with the highest scores (equal ones: the lowest index first), whose results are added with
/// these scores, divided by their sum. Names are Mixtral's: "gate.weight" [E, C], "experts.*.w1.weight". Strategy
/// experts() divides the experts over ranks.
struct MixtureOfExperts {
  /// width: C; hidden: F, the hidden elements of each expert. Throws Error for sizes below 1 and a top_k outside of
  /// [1, E].
  MixtureOfExperts(Index width, Index hidden, const MixtureOptions& = {});
  Tensor operator()(const Tensor& x) const;
  void visit(const StateVisitor& v);  ///< visits "gate.weight" and "experts.*.w1.weight", w2, w3

  MixtureOptions options;
  Linear gate;  ///< the router, without bias
  ExpertWeights weights;
};

}  // namespace trireme
