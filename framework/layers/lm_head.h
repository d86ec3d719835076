// LmHead: the last layer of a language model, a linear layer onto the vocabulary.
#pragma once
#include "framework/layers/module.h"
#include "framework/ops/ops.h"

namespace trireme {

/// logits = x w^T + bias: x [..., C], weight [V, C] -> [..., V]. Where it ends a Sequential that a Step trains by
/// cross_entropy, the two are one op, and the logits never stand whole (linear_cross_entropy()).
struct LmHead {
  /// weight: of its own, or an Embedding's that is tied to it. bias [V] or undefined.
  explicit LmHead(Tensor weight, Tensor bias = {}, Init init = Init::normal(0.02))
      : weight(std::move(weight)), bias(std::move(bias)), init(std::move(init)) {}
  Tensor operator()(const Tensor& x) const { return linear(x, weight, bias); }  ///< ops linear()
  /// cross_entropy_with(options)((*this)(x), labels).
  Tensor loss(const Tensor& x, const Tensor& labels, const LabelLossOptions& options) const {
    return linear_cross_entropy(x, weight, labels, options, bias);
  }
  /// Names "weight" and "bias".
  void visit(const StateVisitor& v) {
    v("weight", weight, StateKind::weight, init);
    v("bias", bias, StateKind::no_decay, Init::zeros());
  }
  Tensor weight,  ///< [V, C]
      bias;       ///< [V] or undefined
  Init init;      ///< of a weight of its own
};

}  // namespace trireme
