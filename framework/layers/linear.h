// Linear: the fully connected layer.
#pragma once
#include "framework/layers/module.h"
#include "framework/ops/ops.h"

namespace trireme {

/// The fully connected layer y = x w^T + b, as torch.nn.Linear: x [..., in] -> [..., out]. Throws Error for in or out
/// below 1.
struct Linear {
  /// Options as torch.nn.Linear's.
  struct Options {
    bool bias = true;                      ///< whether a trained bias [out] is added
    Init init = Init::pytorch_default();   ///< of the weight; the bias takes Init::of_bias
    FileLayout layout = FileLayout::same;  ///< transposed: files have the weight as [in, out] (Hugging Face's Conv1D)
    std::vector<Shares> shares = {};       ///< how ranks may share the outputs, then the inputs; missing: evenly
  };
  /// in and out: numbers of features, at least 1.
  Linear(Index in, Index out, Options options = {true, Init::pytorch_default(), FileLayout::same, {}})
      : init(std::move(options.init)), layout(options.layout), shares(std::move(options.shares)) {
    check(in > 0 && out > 0, "linear", "{} inputs and {} outputs, expected at least 1 of each", in, out);
    weight = init.make({out, in});
    if (options.bias) bias = init.of_bias(weight.shape()).make({out}, 1);
  }
  Tensor operator()(const Tensor& x) const { return linear(x, weight, bias); }  ///< linear()
  /// Visits "weight" and "bias".
  void visit(const StateVisitor& v) {
    v("weight", weight, StateKind::weight, init, layout, shares);
    v("bias", bias, StateKind::no_decay, init.of_bias(weight.shape()), FileLayout::same, shares);
  }
  Tensor weight,               ///< [out, in]; f32 on the CPU until convert() or place()
      bias;                    ///< [out]; undefined if the layer has no bias
  Init init;                   ///< of weight
  FileLayout layout;           ///< of weight, in files
  std::vector<Shares> shares;  ///< of the outputs, then the inputs
};

}  // namespace trireme
