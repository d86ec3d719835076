// EncodedReduction: a sum over ranks of gradients that are sent compressed (parallel/plan/codec.h).
#pragma once
#include "parallel/comm/communicator.h"
#include "parallel/plan/codec.h"

namespace trireme {

/// One compressed sum; used again in every step.
class EncodedReduction {
 public:
  /// Encodes x [n], f32 or f64, by the codec of the context's action and starts to send the first round.
  Work start(Communicator&, CodecContext, const Tensor& x);
  /// Call when that Work is done: runs the remaining rounds in order and sets x to the sum.
  void finish(Communicator&, const Tensor& x);
  /// Restores the codec's states from before start(), if start() was in this step: for gradients that were not used.
  void undo(std::int64_t step) const;

 private:
  Work send(Communicator&);
  template <class F>
  void run(const F& f, const Tensor& wire);

  std::optional<CodecContext> now_;
  std::vector<Tensor> before_;  // the states before start()
  Tensor numbers_;              // x, if the codec needs it
  std::vector<Tensor> wires_;   // encoded by this rank, or their sum; by round
  Tensor all_;                  // all ranks' encodings, if these cannot be summed
};

}  // namespace trireme
