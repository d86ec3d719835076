// Reducer: gradients of a hand-written loop, reduced over ranks during backward (PyTorch's DistributedDataParallel,
// Horovod's DistributedOptimizer).
#pragma once
#include <memory>

#include "framework/optim/optimizer.h"
#include "parallel/comm/world/world.h"
#include "parallel/strategies/strategy.h"

namespace trireme {

class Buckets;  // parallel/runtime/buckets.h

/// For hand-written loops: sums gradients over ranks, bucket by bucket, while backward runs. A loss of this library is
/// this rank's share of the mean over the global batch, so the sum is the gradient of that mean.
///   Reducer reducer(parameters, world); ... loss.backward(); reducer.finish(); optimizer.step();
/// With overlap = false, several backwards may come before finish(); with overlap, the second one throws Error. Buffers
/// (running statistics) stay different on each rank.
class Reducer {
 public:
  /// parameters and world must outlive it.
  Reducer(Parameters& parameters, World& world, DataParallelOptions = {});
  ~Reducer();
  Reducer(const Reducer&) = delete;
  /// Waits for all buckets. Call it on every rank after backward. Gradients that this rank did not produce count as
  /// zero.
  void finish();

 private:
  std::unique_ptr<Buckets> buckets_;  // null: one rank
  bool overlap_;
};
/// Copies rank 0's parameters and buffers to all ranks, and waits. All ranks must have the same model. A collective
/// call.
void broadcast_state(Parameters&, Communicator&);
/// Copies rank 0's optimizer state and step count to all ranks, and waits. All ranks must hold state for the same
/// slices. A collective call.
void broadcast_state(Optimizer&, Communicator&);
/// As above, over all ranks of a world.
inline void broadcast_state(Parameters& p, World& world) { broadcast_state(p, world.comm()); }
/// As above, over all ranks of a world.
inline void broadcast_state(Optimizer& o, World& world) { broadcast_state(o, world.comm()); }

}  // namespace trireme
