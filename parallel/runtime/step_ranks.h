// StepRanks: the ranks of a Step: its communicators for what actions agree on and for batch norm's statistics, and the
// rows of the global batch that this rank brings.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/autograd/step_context.h"
#include "parallel/comm/world/mesh.h"
#include "parallel/strategies/strategy.h"

namespace trireme {

class StepRanks {
 public:
  /// tensor_parallel_axes: along these, ranks hold different parts of the weights. mesh must outlive it. A collective
  /// call; makes the mesh's communicators for the plan's actions, too. Throws
  /// Error with the first difference where ranks that hold the same parts of the weights have different plans, and for
  /// norm groups that do not fit.
  StepRanks(const Plan&, Mesh& mesh, const Strategy&, const std::vector<std::string>& tensor_parallel_axes);

  /// This rank's share of the global batch's rows, and the plan's micro-batches.
  const RankShare& share() const { return share_; }
  /// Whether its loss is the mean over the rows of a worker (Plan::synchronous_axes), not of the global batch.
  bool trains_apart() const { return trains_apart_; }
  /// The context of one step on x, y, this rank's rows: the loader's BatchContext, checked against share(), with the
  /// global batch and sample ids filled in where the loader gave none, which is a collective call then. seed: of
  /// dropout. step: the number of steps before this one. share: of a ticket; none: share(). Throws Error for rows that
  /// are not this rank's share.
  StepContext context(const Tensor& x, const Tensor& y, std::uint64_t seed, std::uint64_t step,
                      std::optional<RankShare> share = {});
  /// Of this rank's worker, in the last of these.
  Index rows() const { return rows_; }

  /// The current StepContext with those that batch norm's statistics go over.
  StepContext surroundings() const;

  /// The ranks that share the global batch; null: this rank has all of it.
  Communicator* batch() const { return batch_.get(); }
  /// Those of this rank's program along an axis.
  Communicator& group(const std::string& axis, Mesh&) const;
  /// Those of them that take part.
  Communicator& group(const Peer&, Mesh&) const;
  /// The ranks along an axis, for what a step agrees on: others than those that reduce gradients meanwhile.
  Communicator& agreement(const std::string& axis, Mesh&) const;
  /// The ranks along the plan's program axis, one per pipeline stage; null: one program.
  Communicator* stages() const { return stages_.get(); }

 private:
  void make_communicators(const Plan&, Mesh&);
  void make_norm_ranks(const Strategy&);
  void check_share(const BatchContext&, Index rows, const RankShare& wanted) const;
  Index number_rows(BatchContext&, Index rows) const;
  Index worker_rows(Index global_batch) const;

  RankShare share_;
  int worker_ = 1;  // ranks of a worker, neighbours in the order of shares
  Index rows_ = 0;
  bool trains_apart_ = false, stale_ = false;
  std::string batch_axis_, stage_axis_;
  std::unique_ptr<Communicator> batch_, stages_;
  std::map<std::string, std::unique_ptr<Communicator>> groups_;  // by axis, where programs share it
  /// By Peer::axis and Peer::members; where this rank is none of these, of the others.
  std::map<std::pair<std::string, std::vector<int>>, std::unique_ptr<Communicator>> subsets_;
  std::unique_ptr<Communicator> norm_group_;  // null: batch norm's statistics cover all ranks or one
  std::shared_ptr<const NormRanks> norm_;     // whose rows batch norm's statistics cover; null: this rank's
};

}  // namespace trireme
