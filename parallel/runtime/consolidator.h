// Consolidator: tracks which parts of a Step's state a rank holds between steps. It brings the weights, running
// statistics and optimizer state of all pipeline stages and ZeRO shards to all ranks (Step::gather_weights,
// StepProbe::consolidate; PyTorch's consolidate_state_dict), and releases their memory before the next step. It also
// selects the state that a rank writes to a checkpoint.
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
  /// As gather_weights(), for the weights of this rank's program only.
  void gather_own_weights();
  /// Call before each step: frees the memory of other stages' weights and gradients. The next gather sends again, also
  /// if the step fails.
  void begin_step();
  /// Call after each step, and before weights are loaded: other ranks' shards are old now, and reading them throws
  /// Error until they are gathered.
  void end_step();
  /// Frees the weights that a step would not leave on this rank: other stages' weights, and other ranks' shards if the
  /// plan drops them after use (zero(3)).
  void release();
  /// As release(), for a store without memory (ParameterStore, drawn_later): allocates what a step leaves on this rank.
  /// Returns checkpoint_shard().
  CheckpointShard allocate();
  /// The state that this rank writes to checkpoints; the caller sets CheckpointShard::all_gather. If several ranks hold
  /// the same state, the first of them along each mesh axis writes it.
  CheckpointShard checkpoint_shard();
  /// The separate weights of this rank, for strategies whose workers train separately.
  const OwnWeights& own() const { return own_; }

 private:
  const Program& program() const { return plan_.programs[static_cast<std::size_t>(program_)]; }
  void free_other_stages();
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
  bool keeps_shards_;             // each step gathers other ranks' shards of the weights
  bool drops_ = false;            // and drops them after use
  bool weights_current_ = false;  // this rank has all weights as of the last step
  bool own_current_ = true;       // this rank has all weights of its program as of the last step
  bool state_current_ = false;    // this rank has all state of the optimizer as of the last step
  bool whole_ = true;             // other stages' weights have memory on this rank
};

}  // namespace trireme
