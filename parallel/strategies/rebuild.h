// Building blocks of strategies: micro-batches; and the actions after a program's backward: reductions of gradients,
// updates, and the distribution of updated weights.
//
// Functions with an argument `strategy` are called by the strategy of that name and use it in messages.
#pragma once
#include "parallel/plan/action_kind.h"
#include "parallel/strategies/strategy.h"

namespace trireme {

/// The serial plan with forward and backward once per micro-batch, then one update.
Plan repeat(Plan, int microbatches, const std::string& strategy);
/// Throws Error unless the plan is unchanged since serial().
void check_untouched(const Plan&, const std::string& strategy);

/// Throws Error for an asynchronous pipeline.
void refuse_asynchronous(const Plan&, const std::string& strategy);

/// Throws Error if ranks along one of these axes (joined by +) hold different parts of weights.
void check_whole_along(const Plan&, const std::string& axes, const std::string& strategy);

/// The axes of `all` that are not in `some`; each a list joined by +.
std::string axes_without(const std::string& all, const std::string& some);
/// An action of this kind on a slice of the flat block, with all ranks along an axis.
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
  Action& at(ActionId id) { return out_.actions[static_cast<std::size_t>(id)]; }  ///< an action that was appended
  Program take() { return std::move(out_); }                                      ///< the new program; call once

 private:
  const Program& program_;
  Program out_;
  std::vector<ActionId> moved_;  // new ids by old
};

/// A new program: calls f(rebuild, id, action) for each action of the old program, in order. f keeps the action, omits
/// it, or adds others.
template <class F>
Program rebuilt(const Program& program, F&& f) {
  Rebuild rebuild(program);
  for (ActionId id = 0; id < std::ssize(program.actions); ++id) f(rebuild, id, program.actions[id]);
  return rebuild.take();
}

/// The plan of a pipeline in which several stages may use the same weights (parallel/plan/ties.h): adds sums of their
/// gradients over these stages after the last backward. Each stage updates its copy. Throws Error for an asynchronous
/// pipeline with such weights.
Plan with_tied_sums(Plan);

/// Whether the action sums gradients over ranks with different rows of the batch, not over copies of tied weights.
inline bool sums_rows(const Plan& plan, const Action& a) {
  return is_reduction(a) && !(plan.has_stages() && a.peer.axis == plan.stage_axis);
}

/// A strategy of that name that adds reduce_over() with these options.
Strategy reducing(const std::string& name, const DataParallelOptions&);
/// The plan after data_parallel; applies it if the plan does not sum gradients over rows yet. Throws Error if ranks
/// divide updates already, and for asynchronous pipelines.
Plan with_reductions(Plan, const std::string& strategy);
/// Adds actions that average the running statistics over an axis after each program's last forward, in the steps of the
/// trigger.
void average_buffers(Plan&, const std::string& axis, const Trigger& = {});
/// cut_buckets() for the plan's parts, without buckets whose axes have one rank.
std::vector<Bucket> buckets_of(const Plan&, const Slice& whole, const DataParallelOptions&);
/// The program with other reductions: one for each bucket with gradients that the program computes. With overlap, a
/// reduction starts when its gradients are complete, else after the whole backward. The sum of tied weights over
/// programs comes last, after the sums over rows. Updates wait for the reductions of their slices.
Program reduce_slices(const Plan&, const Program&, const std::vector<Bucket>&, bool overlap);
/// The program whose reductions over ranks with different rows are cut at the borders of these slices. The updates and
/// collectives that update_by_bucket() added for a reduction are cut, too.
Program cut_reductions(const Plan&, const Program&, const std::vector<Slice>& at);
/// The program with other updates: one for each reduction, of the same slice. Each rank updates its shard of the slice;
/// with a root, that rank updates all of it. Weights without reductions, of which ranks hold different parts, are
/// updated by each rank. An update waits for its own reduction only, while later ones are in progress.
/// - reduction: the kind that replaces all_reduce.
/// - root: the rank that updates, and broadcasts the weights after each update; -1: weights are not distributed.
Program update_by_bucket(const Program&, ActionKind reduction, int root = -1);
/// The plan in which shards of zero(1) and zero(2) are gathered after their updates, and not in the next step before
/// the passes that read them. Ranks then have whole weights between steps, for actions that follow the updates.
Plan gather_after_updates(Plan);

}  // namespace trireme
