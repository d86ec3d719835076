// check(plan): finds faults by which a run would hang or train a different model. Within a program it relies only on
// the order that the plan promises (order of a stream, Action::after), not on the order of one executor. Messages are
// simulated on a few mesh coordinates.
#include <fmt/format.h>

#include <algorithm>

#include "parallel/plan/check/diagnostics.h"
#include "parallel/plan/ties.h"

namespace trireme {
namespace {

/// Whether a result of the action may be used in a later step.
bool outlives_step(const Action& a) {
  return is_backward(a) || is_message(a) || is_reduction(a) || a.kind == ActionKind::update ||
         a.kind == ActionKind::free;
}

void check_shape(const Plan& plan, Diagnostics& faults) {
  for (auto& part : plan.parts)
    if (part.slice.begin < 0 || part.slice.end > plan.parameters || part.slice.size() < 0)
      faults.add("part '{}' has the slice [{}, {}) of a block of {}: use a slice within the block", part.name,
                 part.slice.begin, part.slice.end, plan.parameters);
  for (auto& program : plan.programs) {
    int n = static_cast<int>(program.actions.size());
    for (const auto& [name, t, last, called] : program.phases)
      if (t.every < 1 || t.offset < 0 || t.offset >= t.every || t.from < 0 || t.until <= t.first())
        faults.add(
            "program {}: phase '{}' never runs, since its steps are not valid: every {} steps, offset {}, from {} "
            "until {}. Expected every >= 1, 0 <= offset < every, from >= 0, and until after the first step",
            program.name, name, t.every, t.offset, t.from, t.until);
    for (ActionId id = 0; id < n; ++id) {
      const Action& a = program.actions[id];
      for (ActionId from : a.after)
        if (from < 0 || from >= n || from == id)
          faults.add("{} depends on action {}, which is {}: use other ids of this program, 0 to {}", place(program, id),
                     from, from == id ? "itself" : "not there", n - 1);
      if (a.phase < 0 || a.phase >= std::ssize(program.phases))
        faults.add("{} is of phase {}, but the program has {} phases: add the phase by add_phase()", place(program, id),
                   a.phase, program.phases.size());
      else if (program.trigger(a).on_call)
        faults.add("{} is in the list of the step, but belongs to a phase on call: move the action to the phase",
                   place(program, id));
      if (a.part >= static_cast<int>(plan.parts.size()))
        faults.add("{} is of part {}, but there are only {} parts", place(program, id), a.part, plan.parts.size());
      const bool layered = a.kind == ActionKind::forward || is_backward(a) || a.kind == ActionKind::free;
      if (a.microbatch.index < 0 || a.microbatch.index >= plan.microbatches)
        faults.add("{} is of micro-batch {}, but there are only {} micro-batches, from 0", place(program, id),
                   a.microbatch.index, plan.microbatches);
      if (a.microbatch.steps_ago > 0 && !outlives_step(a))
        faults.add(
            "{} uses a micro-batch of an earlier step: only backwards, and messages, reductions, updates and frees "
            "after them, may do so",
            place(program, id));
      if (layered && a.part < 0) faults.add("{} names no part: set Action::part", place(program, id));
      if ((is_reduction(a) || a.kind == ActionKind::update || is_tied_sum(a)) &&
          (a.slice.begin < 0 || a.slice.end > plan.parameters || a.slice.size() <= 0))
        faults.add("{} has the slice [{}, {}) of a block of {}: use a slice within the block that is not empty",
                   place(program, id), a.slice.begin, a.slice.end, plan.parameters);
      if ((is_collective(a) || is_message(a)) && a.peer.axis.empty())
        faults.add("{} names no mesh axis: set Action::peer.axis", place(program, id));
      const Peer& peer = a.peer;
      const bool to_root = peer.root >= 0 || !peer.channel.empty();
      if (!peer.members.empty() + (peer.offset != 0) + !peer.pairs.empty() + to_root > 1)
        faults.add("{} mixes members, root, offset, pairs or channel of its peer: use one of these",
                   place(program, id));
      const bool of_slice = a.kind == ActionKind::drop || (is_collective(a) && a.kind != ActionKind::agree);
      if (of_slice && !is_custom(a) && !is_slice(a.payload))
        faults.add("{} does not name the block of its slice: set its payload, for example to OperandKind::gradients",
                   place(program, id));
      if (is_message(a) && a.payload != OperandKind::activation && a.payload != OperandKind::cotangent)
        faults.add("{} sends neither an activation nor a gradient of one: name its payload, or Peer::channel",
                   place(program, id));
      if (is_message(a) && a.peer.axis != plan.stage_axis)
        faults.add("{} goes along '{}', where all ranks run one program: messages go between stages, along '{}'",
                   place(program, id), a.peer.axis, plan.stage_axis);
      if (a.on_ready && a.after.empty())
        faults.add("{} is on_ready, but names no backward to start in: add the backward to Action::after",
                   place(program, id));
    }
  }
}

bool overlap(const Plan& plan, const Program& a, const Program& b) {
  return std::ranges::all_of(plan.axes, [&](const Axis& axis) {
    const CoordinateRange x = plan.range(a, axis.name), y = plan.range(b, axis.name);
    return x.begin < y.end && y.begin < x.end;
  });
}

void check_places(const Plan& plan, Diagnostics& faults) {
  Index covered = 0;
  const auto ranged = std::ranges::count_if(plan.programs, [](const Program& p) { return !p.where.empty(); });
  if (ranged > 0 && ranged < std::ssize(plan.programs))
    return faults.add(
        "some programs say on which ranks they run, and some do not: set Program::where for all programs or for none");
  if (plan.has_stages() && std::ranges::any_of(plan.programs, [](const Program& p) { return !p.where.empty(); }))
    return faults.add(
        "the plan has stages of a pipeline and programs with Program::where, which cannot be combined yet: leave one "
        "of the two out");
  for (std::size_t p = 0; p < plan.programs.size(); ++p) {
    const Program& program = plan.programs[p];
    for (const auto& [axis, begin, end] : program.where)
      if (begin < 0 || end <= begin || end > plan.size(axis))
        faults.add("program {} has the ranks {} to {} along '{}', but that axis has {} ranks", program.name, begin,
                   end - 1, axis, plan.size(axis));
    Index ranks = 1;
    for (const Axis& a : plan.axes) ranks *= plan.size(program, a.name);
    covered += ranks;
    for (std::size_t q = 0; q < p; ++q)
      if (!program.where.empty() && overlap(plan, program, plan.programs[q]))
        faults.add("programs {} and {} have a rank in common: each rank runs one program", plan.programs[q].name,
                   program.name);
  }
  if (ranged == 0 || !faults.empty()) return;
  Index all = 1;
  for (const Axis& a : plan.axes) all *= a.size;
  if (covered != all) faults.add("the programs run on {} of {} ranks", covered, all);
}

bool updated_by_server(const Plan& plan, const Slice& s) {
  return std::ranges::any_of(plan.programs, [&](const Program& p) {
    return p.serves() && std::ranges::any_of(p.actions, [&](const Action& a) {
             return a.kind == ActionKind::update && a.slice.overlaps(s);
           });
  });
}

/// The actions of a program that make, sum and use gradients, in list order.
struct GradientActions {
  GradientActions(const Plan& plan, const Program& program) : backwards(plan.parts.size()) {
    for (ActionId id = 0; id < std::ssize(program.actions); ++id) {
      const Action& a = program.actions[id];
      if (completes(a)) backwards[a.part].push_back(id);
      if (sums_gradients(a)) reductions.push_back(id);
      if (is_replica_sum(a)) replica_sums.push_back(id);
      if (a.kind == ActionKind::update) updates.push_back(id);
    }
    for (const PartInfo& part : plan.parts) divided.insert(divided.end(), part.divided.begin(), part.divided.end());
  }
  std::vector<std::vector<ActionId>> backwards;  // that complete a part's gradients, by part
  std::vector<ActionId> reductions, replica_sums, updates;
  std::vector<std::pair<std::string, std::vector<Slice>>> divided;  // PartInfo::divided of all parts: ties cross them
};

/// One segment of a part's parameters that all reductions and updates treat alike.
void check_segment(const Plan& plan, const Program& program, const GradientActions& all, const HappensBefore& order,
                   int part, Slice s, int data_ranks, Diagnostics& faults) {
  std::vector<ActionId> backwards, reductions, replica_sums, updates;
  for (std::size_t p = 0; p < plan.parts.size(); ++p)
    if (uses(plan.parts[p], s)) backwards.insert(backwards.end(), all.backwards[p].begin(), all.backwards[p].end());
  std::ranges::sort(backwards);
  const auto meets = [&](ActionId id) { return program.actions[id].slice.overlaps(s); };
  std::ranges::copy_if(all.reductions, std::back_inserter(reductions), meets);
  std::ranges::copy_if(all.replica_sums, std::back_inserter(replica_sums), meets);
  std::ranges::copy_if(all.updates, std::back_inserter(updates), meets);
  auto name = fmt::format("program {}: gradient [{}, {}) of part {} ('{}')", program.name, s.begin, s.end, part,
                          plan.parts[part].name);
  if (data_ranks > 1 && reductions.empty())
    faults.add("{} is never reduced over the {} ranks that share the batch: use data_parallel()", name, data_ranks);
  if (data_ranks > 1 && reductions.size() > 1)
    faults.add("{} is reduced {} times, by actions {}", name, reductions.size(), fmt::join(reductions, ", "));
  if (const ActionId r = reductions.empty() ? -1 : reductions[0]; r >= 0 && is_reduction(program.actions[r])) {
    int summed = plan.size(program, program.actions[r].peer);
    for (const ActionId id : replica_sums) {
      summed *= plan.size(program, program.actions[id].peer);
      if (!order(r, id)) faults.add("{} is summed over replicas by action {} before action {}", name, id, r);
      for (const ActionId u : updates)
        if (!order(id, u)) faults.add("{} is used by the update, action {}, before its sum, action {}", name, u, id);
    }
    if (!replica_sums.empty() && summed != data_ranks)
      faults.add("{} is summed over {} of the {} ranks that share the batch", name, summed, data_ranks);
  }
  if (updates.empty() && !updated_by_server(plan, s)) faults.add("{} is used by no update", name);
  if (updates.size() > 1)
    faults.add("{} is used by {} updates, actions {}", name, updates.size(), fmt::join(updates, ", "));
  const auto first = [&](ActionId a, ActionId b, int later = 0) { return order.across_steps(a, b, later); };
  for (ActionId r : reductions)
    for (ActionId b : backwards)
      if (!first(b, r))
        faults.add("{} is reduced by action {} before the backward that completes it, action {}", name, r, b);
  for (ActionId u : updates) {
    for (ActionId r : reductions)
      if (!first(r, u)) faults.add("{} is used by the update, action {}, before its reduction, action {}", name, u, r);
    for (ActionId b : backwards) {
      if (!first(b, u))
        faults.add("{} is used by the update, action {}, before the backward that completes it, action {}", name, u, b);
      if (!first(u, b, 1))
        faults.add("{} of the next step is begun by action {} before the update that uses it, action {}", name, b, u);
    }
  }
}

/// Copies of tied weights, which several programs update, are left to check_ties().
void check_updates(const Plan& plan, Diagnostics& faults) {
  std::vector<std::vector<Slice>> updated;
  for (std::size_t r = 0; r < plan.programs.size(); ++r) {
    const std::vector<Slice> copies = copies_in(plan, r);
    std::erase_if(updated.emplace_back(plan.updated(r)), [&](const Slice& s) { return overlaps(copies, s); });
  }
  for (std::size_t a = 0; a < plan.programs.size(); ++a)
    for (std::size_t b = a + 1; b < plan.programs.size(); ++b)
      for (const Slice& s : updated[a])
        for (const Slice& t : updated[b])
          if (s.overlaps(t))
            faults.add("[{}, {}) is updated by program {} and by program {}", std::max(s.begin, t.begin),
                       std::min(s.end, t.end), plan.programs[a].name, plan.programs[b].name);
}

/// Over its axes an agreement on the norm sums the squares of the gradients that each rank updates: every number must
/// be one rank's.
void check_norm(const Plan& plan, const Program& program, ActionId agree, Diagnostics& faults) {
  for (const std::string& name : names_in(program.actions[static_cast<std::size_t>(agree)].peer.axis)) {
    if (plan.size(program, name) == 1) continue;
    std::vector<Slice> divided;
    for (const PartInfo& part : plan.parts)
      for (const auto& [axes, slices] : part.divided)
        if (std::ranges::count(names_in(axes), name) > 0) divided.insert(divided.end(), slices.begin(), slices.end());
    std::ranges::sort(divided, {}, &Slice::begin);
    for (const Action& a : program.actions) {
      if (a.kind != ActionKind::update || std::ranges::count(names_in(a.peer.axis), name) > 0) continue;
      for (const Slice& piece : cut_at(a.slice, divided))
        if (!overlaps(divided, piece))
          faults.add("{} sums the squares of gradients [{}, {}), which each rank along '{}' updates",
                     place(program, agree), piece.begin, piece.end, name);
    }
  }
}

/// Every update of a program must follow its `agree` actions, and every loss the counts that it uses.
void check_agreements(const Plan& plan, const std::vector<HappensBefore>& orders, Diagnostics& faults) {
  for (std::size_t r = 0; r < plan.programs.size(); ++r) {
    const Program& program = plan.programs[r];
    for (ActionId id = 0; id < std::ssize(program.actions); ++id) {
      const Action& a = program.actions[id];
      if (a.kind != ActionKind::agree) continue;
      const bool stages = plan.has_stages() && a.peer.axis == plan.stage_axis;  // of which each updates other weights
      if ((a.payload == OperandKind::norm || a.payload == OperandKind::ratios) && !stages)
        check_norm(plan, program, id, faults);
      for (const std::string& name : a.names)
        if (name != finite_gradients && std::ranges::find(plan.flags, name) == plan.flags.end())
          faults.add(
              "{}: there is no number '{}' to agree on: use count, loss, finite, norm, ratios or one of Plan::flags",
              place(program, id), name);
      const ActionKind user = a.payload == OperandKind::count ? ActionKind::loss : ActionKind::update;
      for (ActionId u = 0; u < std::ssize(program.actions); ++u)
        if (program.actions[u].kind == user && program.actions[u].microbatch.steps_ago == 0 && !orders[r](id, u))
          faults.add("{} does not wait for {}", place(program, u), place(program, id));
    }
  }
}

/// Whether two lists of axes have one in common.
bool shared_axis(const std::string& a, const std::string& b) {
  const auto names = names_in(b);
  return std::ranges::any_of(names_in(a), [&](const std::string& name) { return std::ranges::count(names, name) > 0; });
}

/// Weights that a part uses, piece by piece.
void check_slice(const Plan& plan, const Program& program, const GradientActions& all, const HappensBefore& order,
                 int part, const Slice& whole, int data_ranks, Diagnostics& faults) {
  std::vector<Index> cuts = {whole.begin, whole.end};
  const auto cut = [&](const Slice& s) {
    for (Index at : {s.begin, s.end})
      if (whole.begin < at && at < whole.end) cuts.push_back(at);
  };
  for (const auto* ids : {&all.reductions, &all.updates})
    for (const ActionId id : *ids) cut(program.actions[id].slice);
  for (const Slice& tied : tied_slices(plan)) cut(tied);  // tied weights get gradients from backwards of several parts
  for (const auto& [axes, slices] : all.divided) std::ranges::for_each(slices, cut);
  const std::string axis = plan.reduced_axis();
  const auto ranks = [&](const Slice& s) {  // number of ranks that sum the slice's gradients
    int n = data_ranks;
    for (const std::string& name : names_in(axis))
      if (n > 1 && std::ranges::any_of(all.divided, [&](const auto& d) {
            return overlaps(d.second, s) && std::ranges::count(names_in(d.first), name) > 0;
          }))
        n /= plan.size(name);
    return n;
  };
  std::sort(cuts.begin(), cuts.end());
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
    if (cuts[i] < cuts[i + 1])
      check_segment(plan, program, all, order, part, {cuts[i], cuts[i + 1]}, ranks({cuts[i], cuts[i + 1]}), faults);
}

void check_gradients(const Plan& plan, const std::vector<HappensBefore>& orders, int data_ranks, Diagnostics& faults) {
  const std::string axis = plan.reduced_axis();
  for (std::size_t r = 0; r < plan.programs.size(); ++r) {
    const Program& program = plan.programs[r];
    const std::vector<Slice> copies = copies_in(plan, r);
    const GradientActions all(plan, program);
    for (int p = 0; p < static_cast<int>(plan.parts.size()); ++p) {
      if (all.backwards[p].empty()) continue;
      for (const ActionId id : all.reductions)
        for (const auto& [axes, slices] : plan.parts[p].divided)
          if (const Action& a = program.actions[id]; overlaps(slices, a.slice) && shared_axis(a.peer.axis, axes))
            faults.add(
                "{} sums gradients of part {} ('{}'), of which each rank along '{}' has the whole already: leave the "
                "sum out",
                place(program, id), p, plan.parts[p].name, axes);
      const bool alone = !program.where.empty() && plan.size(program, axis) == 1;
      const int ranks = alone ? 1 : data_ranks;
      check_slice(plan, program, all, orders[r], p, plan.parts[p].slice, ranks, faults);
      for (const Slice& copy : copies)
        if (uses(plan.parts[p], copy)) check_slice(plan, program, all, orders[r], p, copy, data_ranks, faults);
    }
  }
}

/// The executor runs actions in list order, so the actions in Action::after must come earlier in the list.
void check_list_order(const Plan& plan, Diagnostics& faults) {
  for (const Program& program : plan.programs)
    for (ActionId id = 0; id < std::ssize(program.actions); ++id)
      for (ActionId from : program.actions[static_cast<std::size_t>(id)].after)
        if (from > id)
          faults.add("{} waits for action {}, which comes later in the list: move it before", place(program, id), from);
}

}  // namespace

std::vector<std::string> check(const Plan& plan, int data_ranks) {
  Diagnostics faults;
  if (plan.programs.empty()) faults.add("the plan has no program");
  check_shape(plan, faults);
  if (!faults.empty()) return faults.take();  // later checks use the ids in `after`
  check_places(plan, faults);
  if (!faults.empty()) return faults.take();
  std::vector<HappensBefore> orders;
  for (auto& program : plan.programs) {
    orders.emplace_back(program);
    if (!orders.back().cycle().empty()) faults.add("{}", orders.back().cycle());
  }
  if (!faults.empty()) return faults.take();
  check_flow(plan, orders, faults);
  check_shards(plan, orders, faults);
  check_updates(plan, faults);
  check_ties(plan, orders, faults);
  const bool alike = plan.consistency_along(plan.reduced_axis()).kind == Consistency::Kind::synchronous;
  check_gradients(plan, orders, alike ? data_ranks : 1, faults);
  check_consistency(plan, faults);
  check_versions(plan, faults);
  check_channels(plan, faults);
  check_on_call(plan, faults);
  check_agreements(plan, orders, faults);
  if (faults.empty()) check_races(plan, orders, faults);  // the others name the remedy
  check_messages(plan, faults);
  if (faults.empty()) check_list_order(plan, faults);
  return faults.take();
}

}  // namespace trireme
