// Building blocks of strategies: micro-batches, and rewriting of what follows a program's backward: reductions,
// updates, and the distribution of updated weights.
#pragma once
#include "parallel/plan/action_kind.h"
#include "parallel/strategies/strategy.h"

namespace trireme {

/// The serial plan's forward and backward once per micro-batch, then its update.
Plan repeat(Plan, int microbatches, const std::string& strategy);
/// Throws Error unless the plan is unchanged since serial().
void check_untouched(const Plan&, const std::string& strategy);

/// Throws Error for an asynchronous pipeline.
void refuse_asynchronous(const Plan&, const std::string& strategy);

/// Throws Error if ranks along one of these axes hold different parts of weights.
void check_whole_along(const Plan&, const std::string& axes, const std::string& strategy);

/// An action of this kind on a slice, along an axis.
Action on_slice(ActionKind, Stream, const Slice&, const std::string& axis, std::vector<ActionId> after,
                OperandKind payload = OperandKind::none);
/// The reductions of a program, in list order.
std::vector<ActionId> reductions_of(const Program&);

/// Builds a program from an old one, action by action, with new actions in between.
class Rebuild {
 public:
  /// program: the old program, which must outlive this.
  explicit Rebuild(const Program& program)
      : program_(program),
        out_{program.name, {}, program.in_flight, program.phases, program.where},
        moved_(program.actions.size(), -1) {
    out_.versions = program.versions;
  }
  /// Appends an action of the old program with further dependencies `also`; dependencies on omitted actions are
  /// dropped.
  ActionId keep(ActionId old, const std::vector<ActionId>& also = {});
  /// Appends a new action; its `after` has ids that keep() and add() returned, -1 for none.
  ActionId add(Action);
  Program take() { return std::move(out_); }  ///< the new program; call once

 private:
  const Program& program_;
  Program out_;
  std::vector<ActionId> moved_;  // new ids by old
};

/// The program rebuilt: f(rebuild, id, action) for each action of the old one, in order.
template <class F>
Program rebuilt(const Program& program, F&& f) {
  Rebuild rebuild(program);
  for (ActionId id = 0; id < std::ssize(program.actions); ++id) f(rebuild, id, program.actions[id]);
  return rebuild.take();
}

/// The plan of a pipeline with support for weights that several stages share: their gradients are summed over these
/// stages after the last backward, and each stage updates its copy. Throws Error for an asynchronous pipeline.
Plan with_tied_sums(Plan);

/// Whether the action sums gradients of ranks with different rows.
inline bool sums_rows(const Plan& plan, const Action& a) {
  return is_reduction(a) && !(plan.has_stages() && a.peer.axis == plan.stage_axis);
}

/// A strategy of that name that sums gradients by reduce_over().
Strategy reducing(const std::string& name, const DataParallelOptions&);
/// The plan after data_parallel, which is applied now if it was not before. Throws Error if ranks divide updates
/// already, and for asynchronous pipelines.
Plan with_reductions(Plan, const std::string& strategy);
/// Averages the running statistics over an axis after a program's last forward, in the steps of the trigger.
void average_buffers(Plan&, const std::string& axis, const Trigger& = {});
/// cut_buckets() for the plan's parts, without buckets of which one rank has all.
std::vector<Bucket> buckets_of(const Plan&, const Slice& whole, const DataParallelOptions&);
/// Replaces the reductions by one per bucket whose gradients the program makes. A reduction starts as soon as its
/// gradients are complete (overlap), or after the whole backward; for weights with copies in other programs,
/// after the sum over these. Updates wait for the reductions of their slices.
Program reduce_slices(const Plan&, const Program&, const std::vector<Bucket>&, bool overlap);
/// Cuts the reductions over ranks with different rows at the borders of these slices, and what update_by_bucket() made
/// of them.
Program cut_reductions(const Plan&, const Program&, const std::vector<Slice>& at);
/// Replaces the updates by one per reduction, of the slice that it reduces: each rank updates its shard, or root the
/// whole slice. Each rank updates the weights whose gradients are not reduced: other ranks have other parts of them. An
/// update waits for its own reduction only, while later ones are under way. reduction: the kind that replaces
/// all_reduce. give: the action that distributes the weights after each update: all_gather, or broadcast from root;
/// none: no distribution.
Program update_by_bucket(const Program&, ActionKind reduction, std::optional<ActionKind> give, int root = -1);

}  // namespace trireme
