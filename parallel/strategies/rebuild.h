// What strategies that rewrite what is behind a program's backward share: who updates what, and how the others get it.
#pragma once
#include "parallel/strategies/strategy.h"

namespace trireme {

Action on_slice(ActionKind, Stream, const Slice&, const std::string& axis, std::vector<ActionId> after);
std::vector<ActionId> reductions_of(const Program&);

/// A program, action by action, from an old one's: its own by their old ids, with new ones between.
class Rebuild {
 public:
  explicit Rebuild(const Program& program)
      : program_(program),
        out_{program.name, {}, program.in_flight, program.phases, program.where},
        moved_(program.actions.size(), -1) {}
  /// Appends an action of the old program, with one more dependency if it is not -1; without those on what was left
  /// out.
  ActionId keep(ActionId old, ActionId also = -1);
  /// Appends a new one, whose `after` means ids that keep() and add() returned.
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

/// The plan as data_parallel left it; if it was not used yet, used now. Throws Error where updates are shared already.
Plan with_reductions(Plan, const std::string& strategy);
/// Averages the running statistics over an axis, behind a program's last forward.
void average_buffers(Plan&, const std::string& axis);
/// One update per reduction, instead of those there are, of the slice it reduces: by each rank its shard, or by root
/// all of it. The first waits for all, so that the gradient's norm is known. reduction: the kind that takes the place
/// of all_reduce.
Program update_by_bucket(const Program&, ActionKind reduction, int root = -1);
/// Behind each of those updates what gives its weights to all: all_gather, or broadcast from the root.
Program give_updates(const Program&, ActionKind);

}  // namespace trireme
