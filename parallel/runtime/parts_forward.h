// PartsForward: runs a model forward without bringing all weights to any rank. Weights that ZeRO shards are gathered
// for one part at a time; stages of a pipeline pass activations on, and the last stage sends its result to the others.
#pragma once
#include <functional>
#include <vector>

#include "parallel/comm/world/mesh.h"
#include "parallel/model/chain.h"
#include "parallel/plan/plan.h"
#include "parallel/runtime/consolidator.h"

namespace trireme {

class PartsForward {
 public:
  /// Computes a part of the chain from its input, as Chain::run().
  using RunPart = std::function<Tensor(int part, Tensor x, Stashed&)>;

  /// program: index of this rank's program. All references must outlive it.
  PartsForward(const Plan&, int program, const Chain&, Parameters&, Mesh&, Consolidator&);
  /// Whether ranks lack memory for some weights between steps, and all ranks that have a weight have the same.
  bool is_needed() const;
  /// x [rows, ...]: the rows of this rank's share; stages of a pipeline get the same rows. Ranks that shard weights
  /// make equal numbers of calls, also without rows. Returns the result of the last part, on every stage. Between calls
  /// each rank has memory only for the weights that a step leaves there. A collective call.
  Tensor operator()(const Tensor& x, const RunPart&) const;

 private:
  bool runs(int part) const { return !plan_.has_stages() || plan_.program_of(part) == program_; }
  /// Gathers the weights of a part (-1: none), and drops the others that are held.
  void hold(int part, std::vector<std::size_t>& held) const;
  void send(int part, const Tensor& y, const Stashed&) const;
  Tensor receive(int part, const Tensor& x, Stashed&) const;
  Tensor of_last_stage(const Tensor& y) const;

  const Plan& plan_;
  int program_;
  const Chain& chain_;
  Parameters& parameters_;
  Mesh& mesh_;
  Consolidator& consolidator_;
  std::vector<Action> sharded_;  // updates, of whose weights a step drops other ranks' shards
};

}  // namespace trireme
