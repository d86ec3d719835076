#include "parallel/strategies/rebuild.h"

#include "parallel/plan/action_kind.h"

namespace trireme {

Action on_slice(ActionKind kind, Stream stream, const Slice& slice, const std::string& axis,
                std::vector<ActionId> after) {
  Action a{kind, stream};
  a.slice = slice, a.peer.axis = axis, a.after = std::move(after);
  return a;
}

std::vector<ActionId> reductions_of(const Program& program) {
  std::vector<ActionId> ids;
  for (ActionId id = 0; id < static_cast<int>(program.actions.size()); ++id)
    if (is_reduction(program.actions[id])) ids.push_back(id);
  return ids;
}

ActionId Rebuild::keep(ActionId old, ActionId also) {
  Action a = program_.actions[old];
  for (ActionId& id : a.after) id = moved_[id];
  std::erase(a.after, -1);
  if (also >= 0) a.after.push_back(also);
  return moved_[old] = add(std::move(a));
}

ActionId Rebuild::add(Action a) {
  out_.actions.push_back(std::move(a));
  return static_cast<ActionId>(out_.actions.size()) - 1;
}

Plan with_reductions(Plan plan, const std::string& strategy) {
  bool reduces = false;
  for (const Program& program : plan.programs)
    for (const Action& a : program.actions) {
      reduces = reduces || is_reduction(a);
      check(a.kind != ActionKind::update || a.peer.axis.empty(), strategy,
            "the plan's updates are shared already: use one of zero and central_storage, once");
    }
  if (!reduces) return data_parallel()(std::move(plan));
  const auto axes = names_in(plan.reduced_axis());
  for (const PartInfo& part : plan.parts)
    check(std::find(axes.begin(), axes.end(), part.divided) == axes.end(), strategy,
          "the weights of '{}' are cut over '{}' already, where updates would be shared out: leave out one_weird_trick "
          "or {}",
          part.name, part.divided, strategy);
  return plan;
}

Program update_by_bucket(const Program& program, ActionKind reduction, int root) {
  std::vector<ActionId> reduced;
  Program out = rebuilt(program, [&](Rebuild& rebuild, ActionId id, const Action& a) {
    if (a.kind == ActionKind::update) return;
    const ActionId now = rebuild.keep(id);
    if (is_reduction(a)) reduced.push_back(now);
  });
  for (ActionId id : reduced) {
    Action& reduce = out.actions[id];
    reduce.kind = reduction;
    Action update = on_slice(ActionKind::update, Stream::compute, reduce.slice, reduce.peer.axis,
                             id == reduced[0] ? reduced : std::vector<ActionId>{id});
    update.peer.root = root;
    out.actions.push_back(std::move(update));
  }
  return out;
}

Program give_updates(const Program& program, ActionKind kind) {
  return rebuilt(program, [&](Rebuild& rebuild, ActionId id, const Action& a) {
    const ActionId now = rebuild.keep(id);
    if (a.kind != ActionKind::update || a.peer.axis.empty()) return;
    Action give = on_slice(kind, Stream::comm, a.slice, a.peer.axis, {now});
    give.peer.root = a.peer.root;
    rebuild.add(std::move(give));
  });
}

}  // namespace trireme
