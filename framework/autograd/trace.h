// Trace: records the ops that run on this thread while it lives, in order, with names, tensors and options. Exporters
// (ONNX) make a graph of it.
#pragma once
#include <any>
#include <vector>

#include "framework/autograd/tape.h"

namespace trireme {

/// One op of a Trace.
struct TracedOp {
  const char* name;            ///< name given to record(): "conv"; a fused ReLU may follow as a separate op
  std::vector<Tensor> inputs;  ///< undefined: an absent input
  Tensor output;               ///< result of the op
  std::any detail;             ///< options of the op, in their own type: ConvOptions for a convolution
};

/// Records ops from construction to destruction. It holds their tensors, so Tensor::id() identifies one tensor
/// meanwhile. Backward is not recorded meanwhile. Ops that do not call record() (detach() and clone()) are missing:
/// their results are in no TracedOp::output.
class Trace {
 public:
  Trace();
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  std::vector<TracedOp> ops;  ///< in the order of execution

 private:
  Trace* before_;
};

}  // namespace trireme
