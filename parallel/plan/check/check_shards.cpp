// The part of check(plan) that follows shared updates: what ranks reduce, update and give must be the same slices,
// and nothing is used between its drop and its gathering.
#include "parallel/plan/check/diagnostics.h"
#include "parallel/plan/ties.h"

namespace trireme {
namespace {

/// What of the slices lies outside of s.
std::vector<Slice> without(const std::vector<Slice>& slices, const Slice& s) {
  std::vector<Slice> rest;
  for (const Slice& whole : slices)
    for (const Slice& piece : cut_at(whole, {s}))
      if (!piece.overlaps(s)) rest.push_back(piece);
  return rest;
}

/// The first action of that kind, slice and axis; -1: none.
ActionId find(const Program& program, ActionKind kind, const Action& like) {
  for (ActionId id = 0; id < static_cast<int>(program.actions.size()); ++id) {
    const Action& a = program.actions[id];
    if (a.kind == kind && a.slice == like.slice && a.peer.axis == like.peer.axis) return id;
  }
  return -1;
}

void check_update(const Program& program, const HappensBefore& order, ActionId id, Diagnostics& faults) {
  const Action& update = program.actions[id];
  if (update.peer.axis.empty()) {
    for (const Action& a : program.actions)
      if (a.kind == ActionKind::reduce_scatter && a.slice.overlaps(update.slice))
        faults.add("{} updates all of what is reduced to shards: name their axis, {}", place(program, id), a.peer.axis);
    return;
  }
  const bool alone = update.peer.root >= 0;
  const ActionId reduce = find(program, alone ? ActionKind::all_reduce : ActionKind::reduce_scatter, update);
  if (reduce < 0 && alone) faults.add("{} updates what no all_reduce of that slice sums", place(program, id));
  if (reduce < 0 && !alone)
    faults.add("{} updates shards, but no reduce_scatter of that slice leaves them", place(program, id));
  const ActionId drop = find(program, ActionKind::drop_values, update);
  const ActionId give = find(program, alone ? ActionKind::broadcast : ActionKind::all_gather, update);
  if (alone && (give < 0 || !order(id, give) || program.actions[give].peer.root != update.peer.root))
    faults.add("{}: what it changes is never given to the others", place(program, id));
  if (!alone && (give < 0 || (drop < 0 && !order(id, give))))
    faults.add("{}: the shards of the others are never gathered behind it", place(program, id));
}

/// A pass must find the weights as they were gathered last.
void check_use(const Plan& plan, const Program& program, const HappensBefore& order, ActionId id, Diagnostics& faults) {
  const PartInfo& part = plan.parts[static_cast<std::size_t>(program.actions[id].part)];
  std::vector<Slice> weights{part.slice};
  weights.insert(weights.end(), part.tied.begin(), part.tied.end());
  std::erase_if(weights, [](const Slice& s) { return s.size() == 0; });
  for (ActionId before = id - 1; before >= 0 && !weights.empty(); --before) {
    const Action& a = program.actions[before];
    if (a.kind == ActionKind::all_gather && overlaps(weights, a.slice)) {
      if (!order(before, id)) faults.add("{} does not wait for {}", place(program, id), place(program, before));
      weights = without(weights, a.slice);
    }
    if (a.kind == ActionKind::drop_values && overlaps(weights, a.slice)) {
      faults.add("{} uses weights that action {} dropped", place(program, id), before);
      return;
    }
  }
}

}  // namespace

void check_shards(const Plan& plan, const std::vector<HappensBefore>& orders, Diagnostics& faults) {
  for (std::size_t r = 0; r < plan.programs.size(); ++r) {
    const Program& program = plan.programs[r];
    for (ActionId id = 0; id < static_cast<int>(program.actions.size()); ++id) {
      const Action& a = program.actions[id];
      if (a.kind == ActionKind::update) check_update(program, orders[r], id, faults);
      if (a.kind == ActionKind::forward || a.kind == ActionKind::backward || a.kind == ActionKind::backward_input)
        check_use(plan, program, orders[r], id, faults);
      if (a.kind != ActionKind::drop_gradients) continue;
      const ActionId reduce = find(program, ActionKind::reduce_scatter, a);
      if (reduce < 0 || !orders[r](reduce, id))
        faults.add("{} drops gradients before they are reduced", place(program, id));
    }
  }
}

}  // namespace trireme
