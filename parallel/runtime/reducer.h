// Reducer: gradients of a hand-written loop, reduced over ranks during backward (PyTorch's DistributedDataParallel,
// Horovod's DistributedOptimizer).
#pragma once
#include <memory>

#include "framework/optim/optimizer.h"
#include "parallel/comm/world/world.h"
#include "parallel/strategies/strategy.h"

namespace trireme {

class Buckets;  // parallel/runtime/buckets.h

/// For hand-written loops: averages gradients over ranks, bucket by bucket, while backward runs.
///   Reducer reducer(parameters, world); ... loss.backward(); reducer.finish(); optimizer.step();
/// With overlap = false any number of backwards may come before finish(). It does not average buffers (running
/// statistics).
class Reducer {
 public:
  /// parameters and world must outlive it.
  Reducer(Parameters& parameters, World& world, DataParallelOptions = {});
  ~Reducer();
  Reducer(const Reducer&) = delete;
  void finish();  ///< waits for all buckets; gradients that this rank did not produce count as zero

 private:
  std::unique_ptr<Buckets> buckets_;  // null: one rank
  bool overlap_;
};
/// Copies rank 0's parameters and buffers to all ranks, whose models must be alike; waits. A collective call.
void broadcast_state(Parameters&, Communicator&);
/// Copies rank 0's optimizer state and step count to all ranks, which must hold equal slices; waits. A collective call.
void broadcast_state(Optimizer&, Communicator&);
/// Over all ranks of a world.
inline void broadcast_state(Parameters& p, World& world) { broadcast_state(p, world.comm()); }
/// Over all ranks of a world.
inline void broadcast_state(Optimizer& o, World& world) { broadcast_state(o, world.comm()); }

}  // namespace trireme
