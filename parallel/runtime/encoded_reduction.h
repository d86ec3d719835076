// EncodedReduction: a sum of gradients over ranks that travel encoded (parallel/plan/codec.h).
#pragma once
#include "parallel/comm/communicator.h"
#include "parallel/plan/codec.h"

namespace trireme {

class EncodedReduction {
 public:
  /// Encodes x [n], f32 or f64, by the codec of the context's action, and starts to send its first round.
  Work start(Communicator&, CodecContext, const Tensor& x);
  /// Once that is done: makes the rounds that are left, one behind the other, and x becomes the sum.
  void finish(Communicator&, const Tensor& x);
  /// The codec's states are again what they were before start(), if that was in this step: its gradients were not used.
  void undo(std::int64_t step) const;

 private:
  Work send(Communicator&);
  template <class F>
  void run(const F& f, const Tensor& wire);

  std::optional<CodecContext> now_;
  std::vector<Tensor> before_;  // the states as start() found them
  Tensor numbers_;              // x, where the codec wants it
  std::vector<Tensor> wires_;   // encoded by this rank, or their sum; by round
  Tensor all_;                  // encoded by each rank, where they cannot be summed
};

}  // namespace trireme
