// LmHead: the last layer of a language model, a linear layer onto the vocabulary.
#pragma once
#include "framework/layers/module.h"
#include "framework/ops/ops.h"

namespace trireme {

/// logits = x w^T + bias: x [..., C], weight [V, C] -> [..., V]. At the end of a Sequential that a Step trains with
/// cross_entropy, layer and loss become one op that holds few logits at a time (linear_cross_entropy()).
struct LmHead {
  /// weight: its own, or an Embedding's (tied weights). bias [V] or undefined.
  explicit LmHead(Tensor weight, Tensor bias = {}, Init init = Init::normal(0.02))
      : weight(std::move(weight)), bias(std::move(bias)), init(std::move(init)) {}
  Tensor operator()(const Tensor& x) const { return linear(x, weight, bias); }  ///< linear()
  /// cross_entropy_with(options)((*this)(x), labels).
  Tensor loss(const Tensor& x, const Tensor& labels, const LabelLossOptions& options) const {
    return linear_cross_entropy(x, weight, labels, options, bias);
  }
  /// Visits "weight" and "bias".
  void visit(const StateVisitor& v) {
    v("weight", weight, StateKind::weight, init);
    v("bias", bias, StateKind::no_decay, Init::zeros());
  }
  Tensor weight,  ///< [V, C]
      bias;       ///< [V] or undefined
  Init init;      ///< of the weight, if it is not tied
};

}  // namespace trireme
