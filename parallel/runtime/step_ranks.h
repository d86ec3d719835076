// StepRanks: the communicators of a Step for its actions, its agreements and batch norm's statistics, and this rank's
// rows of the global batch.
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

/// The groups of ranks that a Step communicates with, from the view of one rank.
class StepRanks {
 public:
  /// tensor_parallel_axes: mesh axes along which ranks hold different parts of the weights. mesh must outlive it. A
  /// collective call, which also makes the mesh's communicators for the plan's actions. Throws Error if ranks that hold
  /// the same parts of the weights have different plans (the message shows the first difference), and for groups of
  /// batch norm that do not divide the ranks.
  StepRanks(const Plan&, Mesh& mesh, const Strategy&, const std::vector<std::string>& tensor_parallel_axes);

  /// This rank's share of the global batch's rows, and the plan's micro-batches.
  const RankShare& share() const { return share_; }
  /// Whether the loss is the mean over the rows of this rank's worker (Plan::synchronous_axes), not over the global
  /// batch.
  bool trains_apart() const { return trains_apart_; }
  /// The context of one step on this rank's rows: inputs x [rows, ...], targets y [rows, ...]. It has the loader's
  /// BatchContext, checked against share(). If the loader gave no size of the global batch or no sample ids, a
  /// collective call finds them. seed: of dropout. step: number of steps before this one. share: of a ticket; none:
  /// share(). Throws Error for rows that are not this rank's share.
  StepContext context(const Tensor& x, const Tensor& y, std::uint64_t seed, std::uint64_t step,
                      std::optional<RankShare> share = {});
  /// Rows of this rank's worker in the last context().
  Index rows() const { return rows_; }

  /// The current StepContext with the ranks that share batch norm's statistics.
  StepContext surroundings() const;

  /// The ranks that share the global batch; null: this rank has all of it.
  Communicator* batch() const { return batch_.get(); }
  /// The ranks along an axis that run the same program as this rank.
  Communicator& group(const std::string& axis, Mesh&) const;
  /// The ranks of this rank's program that take part in a collective with this peer.
  Communicator& group(const Peer&, Mesh&) const;
  /// The ranks along an axis, for actions `agree`. A separate communicator: gradients may be reduced at the same time.
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
  int worker_ = 1;  // number of ranks per worker; their shares are adjacent
  Index rows_ = 0;
  bool trains_apart_ = false, stale_ = false;
  std::string batch_axis_, stage_axis_;
  std::unique_ptr<Communicator> batch_, stages_;
  std::map<std::string, std::unique_ptr<Communicator>> groups_;  // by axis, if several programs share it
  /// By Peer::axis and Peer::members; if this rank is not a member, the communicator of the other ranks.
  std::map<std::pair<std::string, std::vector<int>>, std::unique_ptr<Communicator>> subsets_;
  std::unique_ptr<Communicator> norm_group_;  // null: batch norm's statistics cover all ranks or one rank
  std::shared_ptr<const NormRanks> norm_;     // ranks whose rows batch norm's statistics cover; null: this rank only
};

}  // namespace trireme
