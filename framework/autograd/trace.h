// Trace: the ops that run on this thread while it lives, in order, as their names, tensors and options. It is what an
// exporter turns into a graph.
#pragma once
#include <any>
#include <vector>

#include "framework/autograd/tape.h"

namespace trireme {

struct TracedOp {
  const char* name;            ///< as record() got it: "conv"; a fused ReLU may follow as an op of its own
  std::vector<Tensor> inputs;  ///< an undefined one stands for "none"
  Tensor output;
  std::any detail;  ///< the op's options, of its own type: ConvOptions of a convolution
};

/// Tensors are held, so an id names one tensor as long as the Trace lives. Nothing goes on the tape meanwhile. Only
/// what an op hands to record() is seen: detach() and clone() leave no mark, so a tensor of unknown
/// origin shows where a chain is broken.
class Trace {
 public:
  Trace();
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  std::vector<TracedOp> ops;

 private:
  Trace* before_;
};

}  // namespace trireme
