// EncodedReduction: a sum of gradients over ranks that travel encoded (parallel/plan/codec.h).
#pragma once
#include "parallel/comm/communicator.h"
#include "parallel/plan/codec.h"

namespace trireme {

class EncodedReduction {
 public:
  /// Encodes x [n] and starts to send it. state [n]: the codec's own numbers of these elements; undefined: it has none.
  Work start(Communicator&, const Codec&, const Tensor& x, const Tensor& state);
  /// The state is again what it was before start(): the gradients were not used.
  void undo(const Tensor& state) const { state.copy_from(before_); }
  /// Once that is done: x becomes the sum.
  void finish(const Communicator&, const Codec&, const Tensor& x) const;

 private:
  Tensor before_;      // the state as start() found it
  Tensor mine_, all_;  // encoded: of this rank, or their sum; of all ranks, where they cannot be summed
};

}  // namespace trireme
