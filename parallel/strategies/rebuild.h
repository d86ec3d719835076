// What strategies that rewrite what is behind a role's backward share: who updates what, and how the others get it.
#pragma once
#include "parallel/strategies/strategy.h"

namespace trireme {

Action on_slice(ActionKind, Stream, const Slice&, const std::string& axis, std::vector<ActionId> after);
std::vector<ActionId> reductions_of(const Role&);

/// A role, action by action, from an old one's: its own by their old ids, with new ones between.
class Rebuild {
 public:
  explicit Rebuild(const Role& role)
      : role_(role), out_{role.name, {}, role.in_flight, role.phases}, moved_(role.actions.size(), -1) {}
  /// Appends an action of the old role, with one more dependency if it is not -1; without those on what was left out.
  ActionId keep(ActionId old, ActionId also = -1);
  /// Appends a new one, whose `after` means ids that keep() and add() returned.
  ActionId add(Action);
  Role take() { return std::move(out_); }

 private:
  const Role& role_;
  Role out_;
  std::vector<ActionId> moved_;  // new ids by old
};

/// The role rebuilt: f(rebuild, id, action) for each action of the old one, in order.
template <class F>
Role rebuilt(const Role& role, F&& f) {
  Rebuild rebuild(role);
  for (ActionId id = 0; id < std::ssize(role.actions); ++id) f(rebuild, id, role.actions[id]);
  return rebuild.take();
}

/// The plan as data_parallel left it; if it was not used yet, used now. Throws Error where updates are shared already.
Plan with_reductions(Plan, const std::string& strategy);
/// Averages the running statistics over an axis, behind a role's last forward.
void average_buffers(Plan&, const std::string& axis);
/// One update per reduction, instead of those there are, of the slice it reduces: by each rank its shard, or by root
/// all of it. The first waits for all, so that the gradient's norm is known. reduction: the kind that takes the place
/// of all_reduce.
Role update_by_bucket(const Role&, ActionKind reduction, int root = -1);
/// Behind each of those updates what gives its weights to all: all_gather, or broadcast from the root.
Role give_updates(const Role&, ActionKind);

}  // namespace trireme
