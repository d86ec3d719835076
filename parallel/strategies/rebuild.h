// What strategies share: micro-batches; and, of those that rewrite what is behind a program's backward, what is reduced
// when, who updates what, and how the others get it.
#pragma once
#include "parallel/strategies/strategy.h"

namespace trireme {

/// The serial plan's forward and backward once per micro-batch, then its update.
Plan repeat(Plan, int microbatches, const std::string& strategy);
/// Throws Error unless the plan is as serial() made it.
void check_untouched(const Plan&, const std::string& strategy);

/// Throws Error for an asynchronous pipeline.
void refuse_asynchronous(const Plan&, const std::string& strategy);

Action on_slice(ActionKind, Stream, const Slice&, const std::string& axis, std::vector<ActionId> after);
std::vector<ActionId> reductions_of(const Program&);

/// A program, action by action, from an old one's: its own by their old ids, with new ones between.
class Rebuild {
 public:
  explicit Rebuild(const Program& program)
      : program_(program),
        out_{program.name, {}, program.in_flight, program.phases, program.where},
        moved_(program.actions.size(), -1) {
    out_.versions = program.versions;
  }
  /// Appends an action of the old program, with more dependencies; without those on what was left out.
  ActionId keep(ActionId old, const std::vector<ActionId>& also = {});
  /// Appends a new one, whose `after` means ids that keep() and add() returned; -1: none.
  ActionId add(Action);
  Program take() { return std::move(out_); }

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

/// The plan of a pipeline with what weights want that parts of several stages use: their gradients summed over these
/// stages behind the last backward, and an update of the copy in each. Throws Error for an asynchronous pipeline.
Plan with_tied_sums(Plan);

/// A strategy of that name that sums gradients by reduce_over().
Strategy reducing(const std::string& name, const DataParallelOptions&);
/// The plan as data_parallel left it; if it was not used yet, used now. Throws Error where updates are shared already,
/// and for asynchronous pipelines.
Plan with_reductions(Plan, const std::string& strategy);
/// Averages the running statistics over an axis, behind a program's last forward, in the steps of the trigger.
void average_buffers(Plan&, const std::string& axis, const Trigger& = {});
/// One reduction per slice whose gradients the program makes, instead of those there are over the axis: as soon as they
/// are complete (overlap), or behind the whole backward; for weights with copies in other programs behind the sum over
/// these. Updates wait for those of their slices.
Program reduce_slices(const Plan&, const Program&, const std::vector<Slice>&, const std::string& axis, bool overlap);
/// One update per reduction, instead of those there are, of the slice it reduces: by each rank its shard, or by root
/// all of it. The first waits for all, so that the gradient's norm is known. reduction: the kind that takes the place
/// of all_reduce. give: what brings the weights to all ranks behind each update: all_gather, or broadcast from the
/// root; none: nothing does.
Program update_by_bucket(const Program&, ActionKind reduction, std::optional<ActionKind> give, int root = -1);

}  // namespace trireme
