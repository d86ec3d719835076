// Consolidator: tracks which rank holds which part of a Step's state between steps. It selects what each rank writes to
// a checkpoint, brings the weights, running statistics and optimizer state of all pipeline stages and ZeRO shards to
// all ranks (Step::gather_weights, StepProbe::consolidate; PyTorch's consolidate_state_dict), and releases their memory
// before the next step.
#pragma once
#include <vector>

#include "framework/io/checkpoint.h"
#include "parallel/comm/world/mesh.h"
#include "parallel/model/chain.h"
#include "parallel/runtime/own_weights.h"

namespace trireme {

/// The placement of a Step's state on one rank.
class Consolidator {
 public:
  /// program: index of this rank's program. All references must outlive it.
  Consolidator(const Plan&, int program, Mesh&, Optimizer&);
  /// Runs the phase `evaluation`, unless this rank has all weights of the last step. A collective call.
  void gather_weights();
  /// Runs the phase `consolidation` (the optimizer's state), unless this rank has all of it. A collective call.
  void gather_state();
  /// Runs the state-gathering actions of a phase on call. A collective call.
  void run(const std::string& phase);
  /// Call before each step: frees the memory of other stages' weights and gradients. A later gather brings the state
  /// after that step, even if it fails.
  void begin_step();
  /// Returns to the state after a step: frees everything that other ranks hold, also their weight shards if the plan
  /// drops these.
  void release();
  /// This rank's part of checkpoints, without its all_gather. If several ranks hold the same part, the first along each
  /// mesh axis writes it.
  CheckpointShard checkpoint_shard();
  /// The separate weights of ranks that train independently.
  const OwnWeights& own() const { return own_; }

 private:
  const Program& program() const { return plan_.programs[static_cast<std::size_t>(program_)]; }
  /// The stage that uses a position in the packed buffers.
  int stage_of_buffer(Index at) const;

  const Plan& plan_;
  int program_;
  Mesh& mesh_;
  Parameters& parameters_;
  Optimizer& optimizer_;
  bool stages_;                 // other ranks have other pipeline stages
  std::vector<Action> shared_;  // updates of this program that several ranks divide
  OwnWeights own_;
  bool drops_ = false;                                    // other ranks' weight shards are dropped between uses
  bool weights_current_ = false, state_current_ = false;  // this rank has all, as of the last step
  bool whole_ = true;                                     // this rank has other stages' weights
};

}  // namespace trireme
