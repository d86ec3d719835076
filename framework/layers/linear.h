// Linear: the fully connected layer.
#pragma once
#include "framework/layers/module.h"
#include "framework/ops/ops.h"

namespace trireme {

/// y = x w^T + b, as torch.nn.Linear: x [..., in] -> [..., out]. Throws Error for in or out below 1.
struct Linear {
  struct Options {
    bool bias = true;
    Init init = Init::pytorch_default();  ///< of the weight; the bias is drawn as Init::of_bias says
  };
  Linear(Index in, Index out, Options options = {true, Init::pytorch_default()}) : init(std::move(options.init)) {
    check(in > 0 && out > 0, "linear", "{} inputs and {} outputs, expected at least 1 of each", in, out);
    weight = init.make({out, in});
    if (options.bias) bias = init.of_bias(weight.shape()).make({out}, 1);
  }
  Tensor operator()(const Tensor& x) const { return linear(x, weight, bias); }
  void visit(const StateVisitor& v) {
    v("weight", weight, StateKind::weight, init);
    v("bias", bias, StateKind::no_decay, init.of_bias(weight.shape()));
  }
  Tensor weight, bias;  ///< [out, in], [out]; f32 on the CPU until convert() or place()
  Init init;
};

}  // namespace trireme
