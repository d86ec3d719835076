#include "parallel/strategies/on_call.h"

#include <algorithm>

#include "parallel/async/channel_plan.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/shards.h"
#include "parallel/plan/ties.h"

namespace trireme {
namespace {

Action of(ActionKind kind, OperandKind payload, const Slice& slice, const std::string& axis, int root = -1) {
  Action a{.kind = kind, .stream = Stream::comm, .slice = slice, .payload = payload};
  a.peer.axis = axis;
  a.peer.root = root;
  return a;
}

/// The slices of the parts, with the place of each; neighbouring slices at the same place are joined. where: the place
/// of a part.
template <class Where>
auto runs(const Plan& plan, Slice PartInfo::*slice, Where where) {
  std::vector<std::pair<Slice, decltype(where(0))>> all;
  for (int p = 0; p < std::ssize(plan.parts); ++p) {
    const Slice s = plan.parts[static_cast<std::size_t>(p)].*slice;
    if (s.size() == 0) continue;
    if (const auto at = where(p); !all.empty() && all.back().second == at)
      all.back().first.end = s.end;
    else
      all.emplace_back(s, at);
  }
  return all;
}

std::vector<Action> set_up(const Plan& plan, const std::string& axis) {
  std::vector<Action> all;
  if (axis.empty()) return all;
  const auto device = [&](int part) { return plan.parts[static_cast<std::size_t>(part)].device; };
  for (const auto& [slice, at] : runs(plan, &PartInfo::slice, device))
    all.push_back(of(ActionKind::broadcast, OperandKind::weights, slice, axis, 0));
  if (plan.buffers > 0) all.push_back(of(ActionKind::broadcast, OperandKind::statistics, {0, plan.buffers}, axis, 0));
  return all;
}

/// Slices that program r updates and sends to other programs, rather than receiving them.
std::vector<Slice> owned(const Plan& plan, std::size_t r) {
  std::vector<Slice> all = plan.updated(r);
  const std::vector<Slice> copies = copies_in(plan, r);
  std::erase_if(all, [&](const Slice& s) { return overlaps(copies, s); });
  return all;
}

/// Servers, and the ranks that share the updates of program r, send their shards. payload: the weights, with the
/// running statistics; or OperandKind::state, all of its states.
std::vector<Action> gather_shards(const Plan& plan, std::size_t r, OperandKind payload) {
  const bool weights = payload == OperandKind::weights;
  const Program& program = plan.programs[r];
  std::vector<Action> all;
  for (const Program& server : plan.programs)
    for (const Action& a : server.actions)
      if (server.serves() && a.kind == ActionKind::update)
        all.push_back(
            of(ActionKind::broadcast, payload, a.slice, server.where.front().axis, server.where.front().begin));
  if (weights && !all.empty() && plan.buffers > 0) {  // statistics come from the first worker
    const std::string& axis = all.front().peer.axis;
    const Program& worker = *std::ranges::find(plan.programs, false, &Program::serves);
    all.push_back(
        of(ActionKind::broadcast, OperandKind::statistics, {0, plan.buffers}, axis, plan.range(worker, axis).begin));
  }
  const std::vector<Slice> copies = copies_in(plan, r);
  for (const Action& a : program.actions)  // over the update's own axis, which may include image axes
    if (a.kind == ActionKind::update && plan.size(a.peer.axis) > 1 && !overlaps(copies, a.slice) &&
        (!weights || keeps_shards(program)))
      all.push_back(of(a.peer.root < 0 ? ActionKind::all_gather : ActionKind::broadcast, payload, a.slice, a.peer.axis,
                       a.peer.root));
  return all;
}

/// Each stage sends its part to the others. payload: as in gather_shards().
std::vector<Action> gather_stages(const Plan& plan, OperandKind payload) {
  std::vector<Action> all;
  if (!plan.has_stages()) return all;
  for (int r = 0; r < std::ssize(plan.programs); ++r)
    for (const Slice& s : owned(plan, static_cast<std::size_t>(r)))
      all.push_back(of(ActionKind::broadcast, payload, s, plan.stage_axis, r));
  if (payload != OperandKind::weights) return all;
  for (const auto& [slice, stage] : runs(plan, &PartInfo::buffers, [&](int part) { return plan.program_of(part); }))
    all.push_back(of(ActionKind::broadcast, OperandKind::statistics, slice, plan.stage_axis, stage));
  return all;
}

/// The mean over workers that train separately. r: the program.
std::vector<Action> average_workers(const Plan& plan, std::size_t r) {
  std::string apart;
  for (const auto& [axis, promised] : plan.consistency) {
    if (axis == plan.stage_axis && plan.has_stages()) continue;  // stages have different weights
    if (promised.kind == Consistency::Kind::stale) return {};    // servers send them
    if (promised != Consistency{} && plan.size(axis) > 1) apart += (apart.empty() ? "" : "+") + axis;
  }
  std::vector<Action> all;
  if (apart.empty()) return all;
  for (const Slice& s : owned(plan, r)) all.push_back(of(ActionKind::all_reduce, OperandKind::weights, s, apart));
  const auto stage = [&](int part) { return static_cast<std::size_t>(plan.program_of(part)); };
  for (const auto& [slice, program] : runs(plan, &PartInfo::buffers, stage))
    if (program == r) all.push_back(of(ActionKind::all_reduce, OperandKind::statistics, slice, apart));
  return all;
}

/// The actions of later steps for the micro-batches in flight after the last step, with micro-batch numbers of the
/// first later step.
std::vector<Action> flush(const Program& program) {
  std::vector<Action> all;
  for (int later = 0; later < most_steps_back(program); ++later)
    for (Action a : program.actions) {
      a.microbatch.steps_ago -= later;
      if (a.microbatch.steps_ago > 0) {
        a.after.clear();
        all.push_back(std::move(a));
      }
    }
  return all;
}

}  // namespace

std::string all_axes(const Plan& plan, const std::vector<std::string>& but) {
  std::string all;
  for (const Axis& a : plan.axes)
    if (a.size > 1 && std::ranges::find(but, a.name) == but.end()) all += (all.empty() ? "" : "+") + a.name;
  return all;
}

Plan with_phases_on_call(Plan plan, const std::vector<std::string>& apart) {
  const std::string everyone = all_axes(plan);
  const Slice each{0, plan.size(everyone)};
  const std::vector<Action> stages = gather_stages(plan, OperandKind::weights),
                            states = gather_stages(plan, OperandKind::state);
  std::vector<Action> saving, diagnosis;
  if (!everyone.empty()) {
    for (const auto payload : {OperandKind::lengths, OperandKind::texts})
      saving.push_back(of(ActionKind::all_gather, payload, each, everyone));
    for (int p = 0; p < std::ssize(plan.parts); ++p) diagnosis.push_back({.kind = ActionKind::forward, .part = p});
    if (!meets_by_messages(plan))  // otherwise other ranks wait for messages, or continue
      diagnosis.push_back(of(ActionKind::agree, OperandKind::first, {}, everyone));
  }
  for (std::size_t r = 0; r < plan.programs.size(); ++r) {
    Program& program = plan.programs[r];
    const auto add = [](std::vector<Action>& to, const std::vector<Action>& next) {
      const auto before = static_cast<ActionId>(to.size());
      to.insert(to.end(), next.begin(), next.end());
      if (before > 0 && !next.empty()) to[static_cast<std::size_t>(before)].after = {before - 1};
    };
    std::vector<Action> evaluation = gather_shards(plan, r, OperandKind::weights);
    std::vector<Action> consolidation = gather_shards(plan, r, OperandKind::state);
    add(evaluation, average_workers(plan, r));
    add(evaluation, stages);
    add(consolidation, states);
    std::erase_if(program.phases, [](const ProgramPhase& p) { return p.trigger.on_call; });
    const auto call = [&](const char* name, std::vector<Action> actions) {
      if (!actions.empty()) program.phases.push_back({name, {.on_call = true}, false, std::move(actions)});
    };
    call(phases::set_up, set_up(plan, all_axes(plan, apart)));
    call(phases::evaluation, std::move(evaluation));
    call(phases::consolidation, std::move(consolidation));
    call(phases::saving, saving);
    call(phases::flush, flush(program));
    if (!program.serves()) call(phases::diagnosis, diagnosis);
  }
  return plan;
}

const std::vector<Action>& actions_on_call(const Program& program, const std::string& phase) {
  static const std::vector<Action> none;
  const auto at = std::ranges::find_if(  // a phase of the step may have the same name
      program.phases, [&](const ProgramPhase& p) { return p.trigger.on_call && p.name == phase; });
  return at == program.phases.end() ? none : at->actions;
}

}  // namespace trireme
