// EncodedReduction: a sum over ranks of gradients that are sent compressed (parallel/plan/codec.h).
#pragma once
#include "parallel/comm/communicator.h"
#include "parallel/plan/codec.h"

namespace trireme {

/// One compressed sum; used again in every step.
class EncodedReduction {
 public:
  /// Encodes x [n], f32 or f64, with the codec of the context's action, and starts to send the first round. Throws
  /// Error for another dtype.
  Work start(Communicator&, CodecContext, const Tensor& x);
  /// Call when that Work is done: runs the remaining rounds in order and sets x to the sum. For a reduce_scatter: as
  /// reduce_shards() (parallel/plan/shards.h).
  void finish(Communicator&, const Tensor& x);
  /// Call if the step's gradients are not used: restores the codec's states from before start(). step: the current one;
  /// does nothing if start() was in an earlier step.
  void undo(std::int64_t step) const;

 private:
  Work send(Communicator&);
  Work scatter(Communicator&);
  void sum_parts(const Communicator&);
  template <class F>
  void run(const F& f, const Tensor& wire);

  std::optional<CodecContext> now_;
  std::vector<Tensor> before_;  // the codec's states before start()
  Tensor numbers_;              // x, if the codec needs it after the first round
  std::vector<Tensor> wires_;   // by round: this rank's encoding; after the round, the sum over ranks
  Tensor all_;                  // all ranks' encodings, for codecs whose encodings cannot be summed; of a
                                // reduce_scatter: of this rank's shard
  Tensor rest_;                 // of a reduce_scatter: all ranks' encodings of the remainder
};

}  // namespace trireme
