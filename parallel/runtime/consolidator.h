// Consolidator: who holds what of a Step's state between steps. It says what each rank writes of a checkpoint, brings
// the weights, running statistics and optimizer state of all pipeline stages and ZeRO shards to all ranks
// (Step::gather_weights, Step::consolidate; PyTorch's consolidate_state_dict), and releases their memory before the
// next step.
#pragma once
#include <vector>

#include "framework/io/checkpoint.h"
#include "parallel/comm/world/mesh.h"
#include "parallel/model/chain.h"
#include "parallel/runtime/own_weights.h"

namespace trireme {

class Consolidator {
 public:
  /// program: this rank's. All that is referred to must outlive it.
  Consolidator(const Plan&, int program, Mesh&, Optimizer&);
  /// Runs the phase `evaluation`, unless all weights are here as the last step left them. A collective call.
  void gather_weights();
  /// Runs the phase `consolidation` (the optimizer's state), unless the state is here. A collective call.
  void gather_state();
  /// Runs the actions of a phase on call that bring state. A collective call.
  void run(const std::string& phase);
  /// Before each step: weights and gradients of other stages take no memory from now on. What is gathered again then is
  /// what the step leaves, even if it fails.
  void begin_step();
  /// As after a step: all that other ranks hold is released (their shards of weights, too, where these are dropped).
  void release();
  /// This rank's part in checkpoints, but for its all_gather. Of ranks that hold the same the first along each mesh
  /// axis writes it.
  CheckpointShard checkpoint_shard();
  /// The own weights of ranks that train for themselves.
  const OwnWeights& own() const { return own_; }

 private:
  const Program& program() const { return plan_.programs[static_cast<std::size_t>(program_)]; }
  /// Of a position in all buffers, packed: the stage that runs them.
  int stage_of_buffer(Index at) const;

  const Plan& plan_;
  int program_;
  Mesh& mesh_;
  Parameters& parameters_;
  Optimizer& optimizer_;
  bool stages_;                 // other ranks have other parts of the model
  std::vector<Action> shared_;  // this program's updates that several ranks share
  OwnWeights own_;
  bool drops_ = false;                                    // weights of others' shards are not here between their uses
  bool weights_current_ = false, state_current_ = false;  // all is here, as the last step left it
  bool whole_ = true;                                     // weights of other stages are here
};

}  // namespace trireme
