// A layer of experts: each token goes through a few of several small MLPs (mixture of experts: Shazeer et al., arXiv
// 1701.06538; Fedus et al., Switch Transformers, arXiv 2101.03961).
#pragma once
#include "framework/tensor/tensor.h"

namespace trireme {

/// The MLPs of E experts, without biases: w2 (activation(w1 x) * w3 x), named as in Mixtral (Jiang et al., arXiv
/// 2401.04088); without w3: w2 activation(w1 x).
struct ExpertWeights {
  Tensor w1,                            ///< [E, F, C]
      w2,                               ///< [E, C, F]
      w3;                               ///< [E, F, C] or undefined
  Tensor (*activation)(const Tensor&);  ///< an elementwise op
};

/// y[.., :] = sum over j of weights[.., j] * expert ids[.., j] of x[.., :], in the order of j; an id of -1
/// names no expert, and adds nothing. x [..., C], ids i64 [..., K] in [-1, E), weights [..., K], summed in f32 (f64 for
/// f64 data) -> x's shape and dtype. If ranks have different experts, tokens travel to the ranks of their experts and
/// back (Lepikhin et al., GShard, arXiv 2006.16668); this reads the ids on the host, and is collective. Each expert
/// sees its tokens in the order of the ranks and of their rows. Throws Error for shapes that do not fit and for an id
/// outside of [-1, E).
Tensor mixture_of_experts(const Tensor& x, const Tensor& ids, const Tensor& weights, const ExpertWeights& w);

}  // namespace trireme
