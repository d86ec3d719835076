// Linear: the fully connected layer.
#pragma once
#include "framework/layers/module.h"
#include "framework/ops/ops.h"

namespace trireme {

/// y = x w^T + b, as torch.nn.Linear: x [..., in] -> [..., out]. Throws Error for in or out below 1.
struct Linear {
  /// As torch.nn.Linear's.
  struct Options {
    bool bias = true;                      ///< whether a bias [out] is added, and trained
    Init init = Init::pytorch_default();   ///< of the weight; the bias is drawn as Init::of_bias says
    FileLayout layout = FileLayout::same;  ///< transposed: files have the weight as [in, out] (Hugging Face's Conv1D)
  };
  /// in and out: features, at least 1.
  Linear(Index in, Index out, Options options = {true, Init::pytorch_default(), FileLayout::same})
      : init(std::move(options.init)), layout(options.layout) {
    check(in > 0 && out > 0, "linear", "{} inputs and {} outputs, expected at least 1 of each", in, out);
    weight = init.make({out, in});
    if (options.bias) bias = init.of_bias(weight.shape()).make({out}, 1);
  }
  Tensor operator()(const Tensor& x) const { return linear(x, weight, bias); }  ///< ops linear(), without ReLU
  /// Names "weight" and "bias".
  void visit(const StateVisitor& v) {
    v("weight", weight, StateKind::weight, init, layout);
    v("bias", bias, StateKind::no_decay, init.of_bias(weight.shape()));
  }
  Tensor weight,      ///< [out, in]; f32 on the CPU until convert() or place()
      bias;           ///< [out]; undefined without one
  Init init;          ///< of weight
  FileLayout layout;  ///< of weight in files
};

}  // namespace trireme
