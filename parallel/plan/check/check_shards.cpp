// The part of check(plan) for updates that ranks divide (ZeRO): ranks must reduce, update and gather the same slices,
// and must not use weights that are dropped or old until they are gathered.
#include <map>
#include <tuple>

#include "parallel/plan/check/diagnostics.h"
#include "parallel/plan/operands.h"
#include "parallel/plan/shards.h"
#include "parallel/plan/ties.h"

namespace trireme {
namespace {

/// The parts of the slices outside of s.
std::vector<Slice> without(const std::vector<Slice>& slices, const Slice& s) {
  std::vector<Slice> rest;
  for (const Slice& whole : slices)
    for (const Slice& piece : cut_at(whole, {s}))
      if (!piece.overlaps(s)) rest.push_back(piece);
  return rest;
}

/// The actions of a program that name an axis, by kind, payload, slice and axis.
class Shared {
 public:
  explicit Shared(const Program& program) {
    for (ActionId id = 0; id < std::ssize(program.actions); ++id) {
      const Action& a = program.actions[id];
      if (a.peer.axis.empty()) continue;
      first_.try_emplace({a.kind, a.payload, a.slice.begin, a.slice.end, a.peer.axis}, id);
      if (a.kind == ActionKind::reduce_scatter) scattered.push_back(id);
    }
  }
  /// The first action of that kind, payload, slice and axis; -1: none.
  ActionId find(ActionKind kind, OperandKind payload, const Action& like) const {
    const auto at = first_.find({kind, payload, like.slice.begin, like.slice.end, like.peer.axis});
    return at == first_.end() ? -1 : at->second;
  }
  std::vector<ActionId> scattered;  // the reduce_scatters

 private:
  std::map<std::tuple<ActionKind, OperandKind, Index, Index, std::string>, ActionId> first_;
};

void check_update(const Program& program, const Shared& shared, const HappensBefore& order, ActionId id,
                  Diagnostics& faults) {
  const Action& update = program.actions[id];
  if (update.peer.axis.empty()) {
    for (const ActionId reduce : shared.scattered)
      if (const Action& a = program.actions[reduce]; a.slice.overlaps(update.slice))
        faults.add("{} updates a whole slice that is reduced to shards: name their axis, {}", place(program, id),
                   a.peer.axis);
    return;
  }
  const bool alone = update.peer.root >= 0;
  using K = OperandKind;
  const ActionId reduce =
      shared.find(alone ? ActionKind::all_reduce : ActionKind::reduce_scatter, K::gradients, update);
  if (reduce < 0 && alone)
    faults.add("{} updates a slice whose gradients are not summed: add an all_reduce of that slice",
               place(program, id));
  if (reduce < 0 && !alone)
    faults.add("{} updates shards, but no reduce_scatter makes them: add a reduce_scatter of that slice",
               place(program, id));
  const ActionId drop = shared.find(ActionKind::drop, K::weights, update);
  const ActionId give = shared.find(alone ? ActionKind::broadcast : ActionKind::all_gather, K::weights, update);
  if (alone && (give < 0 || !order(id, give) || program.actions[give].peer.root != update.peer.root))
    faults.add("{}: no action brings the updated weights to the other ranks", place(program, id));
  // Without a drop, the shards of other ranks are gathered after the update, or in the next step before their use.
  if (!alone && (give < 0 || (drop < 0 && !order(id, give) && !order(give, id))))
    faults.add("{}: no all_gather after it brings the shards of the other ranks, and none before the passes",
               place(program, id));
}

/// A pass must run after the last gathering of its weights. moves: gathers and drops before the pass.
void check_use(const Plan& plan, const Program& program, const HappensBefore& order, ActionId id,
               const std::vector<ActionId>& moves, Diagnostics& faults) {
  const PartInfo& part = plan.parts[static_cast<std::size_t>(program.actions[id].part)];
  std::vector<Slice> weights{part.slice};
  weights.insert(weights.end(), part.tied.begin(), part.tied.end());
  std::erase_if(weights, [](const Slice& s) { return s.size() == 0; });
  for (std::size_t i = moves.size(); i-- > 0 && !weights.empty();) {
    const ActionId before = moves[i];
    const Action& a = program.actions[before];
    if (a.kind == ActionKind::all_gather && overlaps(weights, a.slice)) {
      if (!order(before, id)) faults.add("{} does not wait for {}", place(program, id), place(program, before));
      weights = without(weights, a.slice);
    }
    if (drops(a, OperandKind::weights) && overlaps(weights, a.slice)) {
      faults.add("{} uses weights that action {} dropped", place(program, id), before);
      return;
    }
  }
}

/// Weights that are gathered before their update are whole in between only: no pass and no custom action may use them
/// at another time. check_use() looks at the passes after a gather.
void check_while_whole(const Plan& plan, const Program& program, const Shared& shared, const HappensBefore& order,
                       Diagnostics& faults) {
  if (!keeps_shards(program)) return;
  struct Whole {  // weights of an update
    Slice slice;
    ActionId gather, update;
    bool drops;
  };
  std::vector<Whole> wholes;
  for (ActionId id = 0; id < std::ssize(program.actions); ++id) {
    const Action& a = program.actions[id];
    if (a.kind != ActionKind::update || a.peer.axis.empty()) continue;
    const ActionId gather = shared.find(ActionKind::all_gather, OperandKind::weights, a);
    const bool drops = shared.find(ActionKind::drop, OperandKind::weights, a) >= 0;
    if (gather >= 0 && !order(id, gather)) wholes.push_back({a.slice, gather, id, drops});
  }
  const bool any = std::ranges::any_of(program.actions, is_custom);
  const auto operands = any ? accesses(plan, program) : std::vector<std::vector<Operand>>();
  const auto uses_slice = [&](ActionId id, const Slice& slice) {
    if (const Action& a = program.actions[id]; is_pass(a)) return a.part >= 0 && uses(plan.parts[a.part], slice);
    return std::ranges::any_of(operands[static_cast<std::size_t>(id)], [&](const Operand& o) {
      return o.kind == OperandKind::weights && o.slice.overlaps(slice);
    });
  };
  for (const Whole& w : wholes)
    for (ActionId id = 0; id < (any ? static_cast<int>(program.actions.size()) : w.gather); ++id) {
      const Action& a = program.actions[id];
      if (!(is_pass(a) && id < w.gather) && !is_custom(a)) continue;
      if (!uses_slice(id, w.slice)) continue;
      if (is_custom(a) && w.drops)
        faults.add("{} uses weights that the plan drops: zero(3) keeps no whole weights, use zero(1) or zero(2)",
                   place(program, id));
      else if (!order(w.gather, id))
        faults.add("{} does not wait for {}, so it uses old weights of other ranks", place(program, id),
                   place(program, w.gather));
      else if (!order(id, w.update))
        faults.add("{} uses weights of which other ranks have updated shards: call gather_after_updates() on the plan",
                   place(program, id));
    }
}

}  // namespace

void check_shards(const Plan& plan, const std::vector<HappensBefore>& orders, Diagnostics& faults) {
  for (std::size_t r = 0; r < plan.programs.size(); ++r) {
    const Program& program = plan.programs[r];
    const Shared shared(program);
    check_while_whole(plan, program, shared, orders[r], faults);
    std::vector<ActionId> moves;
    for (ActionId id = 0; id < static_cast<int>(program.actions.size()); ++id) {
      const Action& a = program.actions[id];
      if (a.kind == ActionKind::all_gather || drops(a, OperandKind::weights)) moves.push_back(id);
      if (a.kind == ActionKind::update) check_update(program, shared, orders[r], id, faults);
      if (a.kind == ActionKind::forward || a.kind == ActionKind::backward || a.kind == ActionKind::backward_input)
        check_use(plan, program, orders[r], id, moves, faults);
      if (!drops(a, OperandKind::gradients)) continue;
      const ActionId reduce = shared.find(ActionKind::reduce_scatter, OperandKind::gradients, a);
      if (reduce < 0 || !orders[r](reduce, id))
        faults.add("{} drops gradients before they are reduced", place(program, id));
    }
  }
}

}  // namespace trireme
