#include "parallel/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "parallel/comm/fnv.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/codec.h"
#include "parallel/plan/ties.h"

namespace trireme {
namespace {

std::string range(const Slice& s) { return fmt::format("[{}, {})", s.begin, s.end); }

std::string head(const Plan& plan) {
  return fmt::format("plan {}: {} parts, {} parameters, hash {:016x}\n",
                     plan.strategies.empty() ? "serial" : fmt::format("{}", fmt::join(plan.strategies, " | ")),
                     plan.parts.size(), plan.parameters, plan.hash());
}

std::string program_line(const Program& program) {
  std::string text = fmt::format("program {}: {} actions", program.name, program.actions.size());
  for (const CoordinateRange& r : program.where) text += fmt::format(", {} {} to {}", r.axis, r.begin, r.end - 1);
  if (program.in_flight > 0) text += fmt::format(", at most {} in flight", program.in_flight);
  if (program.versions > 1) text += fmt::format(", {} versions of its weights", program.versions);
  for (const ProgramPhase& p : program.phases)
    if (p.trigger != Trigger{} && !p.trigger.on_call) text += fmt::format("; {}: {}", p.name, to_string(p.trigger));
  return text + "\n";
}

/// The other end of a message.
std::string end_of(const Peer& p) {
  if (p.channel.empty()) return fmt::format("{} {:+}", p.axis, p.offset);
  std::string text = p.root >= 0            ? fmt::format("{} {}", p.axis, p.root)
                     : p.senders_of.empty() ? "the senders"
                                            : "those who send " + p.senders_of;
  if (p.per_root > 0) text += fmt::format(" and on, one for {} ranks,", p.per_root);
  return text + " on " + p.channel;
}

void add(Fnv& fnv, const Action& a) {
  fnv.add(a.kind->name, a.stream, a.part, a.microbatch.index, a.microbatch.steps_ago, a.peer.offset, a.peer.root,
          a.on_ready);
  fnv.add(a.slice.begin, a.slice.end, a.peer.axis, a.peer.pairs, a.peer.seed, a.peer.channel, a.payload, a.names.size(),
          a.phase);
  for (const std::string& name : a.names) fnv.add(name);
  fnv.add(a.after.size());
  for (ActionId id : a.after) fnv.add(id);
  fnv.add(std::string(a.codec ? a.codec->name : ""), a.arguments.size());
  for (auto& [name, value] : a.arguments) fnv.add(name, std::bit_cast<std::uint64_t>(value));
  if (a.version > 0) fnv.add(a.version);
  if (!a.shard_axis.empty()) fnv.add(a.shard_axis);
  if (a.peer.per_root > 0 || !a.peer.senders_of.empty()) fnv.add(a.peer.per_root, a.peer.senders_of);
  for (const int member : a.peer.members) fnv.add(member);
  if (!a.kind->options.empty()) fnv.add(a.kind->options);
}

/// What holds for all programs, a line each.
std::string common_lines(const Plan& plan) {
  const bool ranged = std::ranges::any_of(plan.programs, [](const Program& p) { return !p.where.empty(); });
  std::string text = fmt::format("{} micro-batches, {}{} numbers of running statistics\n", plan.microbatches,
                                 ranged ? "" : "programs along " + plan.stage_axis + ", ", plan.buffers);
  for (std::size_t i = 0; i < plan.parts.size(); ++i) {
    const PartInfo& p = plan.parts[i];
    text += fmt::format("part {:>3}  {:<24} {}{}", i, p.name, range(p.slice),
                        p.buffers.size() > 0 ? ", buffers " + range(p.buffers) : "");
    for (const Slice& s : p.tied) text += ", tied to " + range(s);
    text += "\n";
  }
  for (auto& a : plan.axes) text += fmt::format("axis {} of {}\n", a.name, a.size);
  for (auto& [axis, c] : plan.consistency) text += fmt::format("weights along {}: {}\n", axis, to_string(c));
  if (plan.tickets > 0)
    text += fmt::format("tickets: {} of each global batch, {} ahead\n", plan.tickets, plan.tickets_ahead);
  for (auto& s : plan.state)
    text += fmt::format("state {} {}{}, from {}, {}saved\n", s.name,
                        s.replicated ? "alike with the weights" : "of each rank",
                        s.dtype ? " as " + std::string(name_of(*s.dtype)) : "", s.initial, s.saved ? "" : "not ");
  return text;
}

/// A line for the actions that are alike.
std::string grouped(const std::vector<Action>& actions) {
  struct Group {  // actions that differ in place only
    Action alike;
    int count = 0;
    Index elements = 0;
  };
  std::vector<Group> groups;
  for (Action a : actions) {
    const Index elements = a.slice.size();
    a.part = -1;
    a.microbatch = {};
    a.slice = {};
    a.after.clear();
    auto at = std::ranges::find(groups, a, &Group::alike);
    if (at == groups.end()) at = groups.insert(at, {a});
    at->elements += elements;
    ++at->count;
  }
  std::string text;
  for (auto& [alike, count, elements] : groups)
    text += fmt::format("{:>6}  {:<8} {}{}\n", count, to_string(alike.stream), to_string(alike),
                        elements > 0 ? fmt::format(", {} elements", elements) : "");
  return text;
}

/// A line for each.
std::string listed(const std::vector<Action>& actions) {
  std::string text;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Action& a = actions[i];
    text += fmt::format("{:>4}  {:<8} {}{}\n", i, to_string(a.stream), to_string(a),
                        a.after.empty() ? "" : fmt::format(", after {}", fmt::join(a.after, " ")));
  }
  return text;
}

}  // namespace

std::vector<Slice> detail::joined(std::vector<Slice> slices) {
  std::sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) { return a.begin < b.begin; });
  std::vector<Slice> all;
  for (const Slice& s : slices)
    if (!all.empty() && all.back().end == s.begin)
      all.back().end = s.end;
    else
      all.push_back(s);
  return all;
}

std::string to_string(Stream s) { return s == Stream::compute ? "compute" : "comm"; }
std::string to_string(ActionKind v) { return v->name; }

std::string to_string(OperandKind kind) {
  constexpr std::array names = {
      "none",    "weights", "gradients", "statistics", "state",  "activation", "gradient of the activation",
      "scratch", "loss",    "count",     "norm",       "ratios", "flags",      "first",
      "clock",   "ticket",  "senders",   "lengths",    "texts"};
  return names[static_cast<std::size_t>(kind)];
}

std::string payload_of(const Action& a) {
  if (a.payload == OperandKind::none) return "";
  if (a.payload == OperandKind::state && a.names.empty()) return "optimizer";
  return a.names.empty() ? to_string(a.payload) : fmt::format("{}", fmt::join(a.names, "+"));
}

std::string to_string(const MicroBatch& m) {
  if (m.steps_ago == 0) return fmt::format("{}", m.index);
  return fmt::format("{} of {} step{} ago", m.index, m.steps_ago, m.steps_ago == 1 ? "" : "s");
}

std::string to_string(const Trigger& t) {
  if (t.on_call) return "on call";
  if (!t.channel.empty()) {
    std::string text = t.count == 0   ? "by a message of each rank on " + t.channel
                       : t.count == 1 ? "by a message on " + t.channel
                                      : fmt::format("by {} messages on {}", t.count, t.channel);
    if (t.late) text += " that is late";
    if (!t.chosen.empty()) text += " of those that " + t.chosen + " names";
    if (!t.guard.empty())
      text += fmt::format(", at most {} step{} ahead of the slowest on {}", t.staleness, t.staleness == 1 ? "" : "s",
                          t.guard);
    return text;
  }
  std::string text = t.every > 1 ? fmt::format("every {} steps", t.every) : "";
  if (t.offset > 0) text += fmt::format(", {} behind", t.offset);
  if (t.from > 0) text += fmt::format("{}from {} on", text.empty() ? "" : " ", t.from);
  if (t.until != Trigger::forever) text += fmt::format("{}until {}", text.empty() ? "" : " ", t.until);
  return text;
}

std::string to_string(const Consistency& c) {
  constexpr std::array names = {"synchronous", "periodic", "stale", "gossip"};
  const char* name = names[static_cast<std::size_t>(c.kind)];
  if (c.bound == Consistency::unbounded) return fmt::format("{}(unbounded)", name);
  return c.bound > 0 ? fmt::format("{}({})", name, c.bound) : name;
}

std::string to_string(const Action& a) {
  std::string text = to_string(a.kind);
  if (a.payload != OperandKind::none)
    text += (a.payload == OperandKind::state && !a.names.empty() ? " state " : " ") + payload_of(a);
  if (a.part >= 0) text += fmt::format(" part {}", a.part);
  if (a.microbatch != MicroBatch()) text += " micro " + to_string(a.microbatch);
  if (a.slice.size() > 0) text += fmt::format(" {}", range(a.slice));
  if (is_message(a) || is_channel(a))
    text += (a.kind == ActionKind::send ? " to " : " from ") + end_of(a.peer);
  else if (!a.peer.axis.empty())
    text += " over " + a.peer.axis;
  if (!a.shard_axis.empty()) text += ", shards along " + a.shard_axis;
  if (!a.peer.members.empty()) text += fmt::format(" at {}", fmt::join(a.peer.members, ", "));
  if (a.peer.root >= 0 && !is_channel(a))
    text += fmt::format(" {} {}", a.kind == ActionKind::update ? "at" : "from", a.peer.root);
  if (a.on_ready) text += ", on ready";
  if (!a.peer.pairs.empty()) text += fmt::format(" by pairs {}", a.peer.pairs);
  if (a.peer.seed > 0) text += fmt::format(" seed {}", a.peer.seed);
  if (a.codec) text += fmt::format(" as {}", a.codec->name);
  for (auto& [name, value] : a.arguments) text += fmt::format(" {}={}", name, value);
  if (a.version > 0) text += fmt::format(", weights {} update{} old", a.version, a.version == 1 ? "" : "s");
  if (a.phase > 0) text += fmt::format(", phase {}", a.phase);
  return text;
}

bool Program::serves() const {
  return std::ranges::any_of(phases, [](const ProgramPhase& p) { return !p.trigger.channel.empty(); });
}

int Plan::size(const std::string& axis) const { return size_along(axes, axis); }

int Plan::size(const Program& program, const std::string& axis) const {
  int product = 1;
  for (const std::string& name : names_in(axis)) {
    const CoordinateRange along = range(program, name);
    product *= along.end - along.begin;
  }
  return product;
}

int Plan::size(const Program& program, const Peer& peer) const {
  return peer.members.empty() ? size(program, peer.axis) : static_cast<int>(std::ssize(peer.members));
}

CoordinateRange Plan::range(const Program& program, const std::string& axis) const {
  const auto at = std::ranges::find(program.where, axis, &CoordinateRange::axis);
  return at != program.where.end() ? *at : CoordinateRange{axis, 0, size(axis)};
}

int Plan::program_at(const std::function<int(const std::string&)>& coordinate) const {
  for (std::size_t p = 0; p < programs.size(); ++p) {
    const auto contains = [&](const CoordinateRange& r) {
      const int at = coordinate(r.axis);
      return r.begin <= at && at < r.end;
    };
    const bool here = programs[p].where.empty() ? programs.size() == 1 || coordinate(stage_axis) == static_cast<int>(p)
                                                : std::ranges::all_of(programs[p].where, contains);
    if (here) return static_cast<int>(p);
  }
  fail("plan", "a rank has no program");
}

bool Plan::has_stages() const {
  return programs.size() > 1 && std::ranges::any_of(programs, [&](const Program& p) {
           return p.where.empty() || std::ranges::find(p.where, stage_axis, &CoordinateRange::axis) != p.where.end();
         });
}

int Plan::program_of(int part) const {
  for (std::size_t r = 0; r < programs.size(); ++r)
    for (auto& a : programs[r].actions)
      if (a.kind == ActionKind::forward && a.part == part) return static_cast<int>(r);
  return -1;
}

std::string Plan::reduced_axis() const {
  std::string most;
  for (auto& program : programs)
    for (auto& a : program.actions) {
      if (!sums_gradients(a) && !is_replica_sum(a)) continue;
      const std::string axes = is_replica_sum(a) ? a.peer.axis + "+" + a.shard_axis : a.peer.axis;
      if (most.empty() || names_in(axes).size() > names_in(most).size()) most = axes;
    }
  return most.empty() ? "data" : most;
}

Consistency Plan::consistency_along(const std::string& axis) const {
  for (const std::string& name : names_in(axis))
    if (const auto at = consistency.find(name);
        at != consistency.end() && at->second.kind != Consistency::Kind::synchronous)
      return at->second;
  return {};
}

std::string Plan::synchronous_axes(const std::string& axes) const {
  std::string all;
  for (const std::string& name : names_in(axes))
    if (consistency_along(name) == Consistency{}) all += (all.empty() ? "" : "+") + name;
  return all;
}

std::vector<Slice> Plan::updated(std::size_t program) const {
  std::vector<Slice> slices;
  for (auto& a : programs[program].actions)
    if (a.kind == ActionKind::update) slices.push_back(a.slice);
  std::vector<Slice> tied, all;
  for (const Tie& tie : ties_of(*this)) tied.push_back(tie.slice);
  for (const Slice& whole : detail::joined(std::move(slices)))
    for (const Slice& piece : cut_at(whole, tied)) all.push_back(piece);
  return all;
}

std::string Plan::summary() const {
  std::string text = head(*this);
  for (auto& program : programs) {
    text += program_line(program) + grouped(program.actions);
    for (auto& p : program.phases)
      if (p.trigger.on_call) text += "  on call, " + p.name + ":\n" + grouped(p.actions);
  }
  return text;
}

std::string Plan::to_string() const {
  std::string text = head(*this) + common_lines(*this);
  for (auto& program : programs) {
    text += program_line(program) + listed(program.actions);
    for (auto& p : program.phases)
      if (p.trigger.on_call) text += "  on call, " + p.name + ":\n" + listed(p.actions);
  }
  return text;
}

std::uint64_t Plan::hash() const {
  Fnv fnv;
  fnv.add(parameters, buffers, stage_axis, axes.size());
  for (auto& a : axes) fnv.add(a.name, a.size);
  fnv.add(microbatches, parts.size());
  for (auto& p : parts) {
    fnv.add(p.name, p.slice.begin, p.slice.end, p.buffers.begin, p.buffers.end);
    for (auto& s : p.tied) fnv.add(s.begin, s.end);
  }
  fnv.add(strategies.size(), state.size(), consistency.size());
  for (auto& name : strategies) fnv.add(name);
  for (auto& s : state)
    fnv.add(s.name, std::bit_cast<std::uint64_t>(s.initial), s.saved, s.replicated,
            s.dtype ? std::string(name_of(*s.dtype)) : "");
  for (auto& [axis, c] : consistency) fnv.add(axis, c.kind, c.bound);
  if (tickets > 0) fnv.add(tickets, tickets_ahead);
  fnv.add(programs.size());
  for (auto& program : programs) {
    fnv.add(program.name, program.in_flight, program.actions.size(), program.phases.size(), program.where.size());
    for (auto& [name, t, last, actions] : program.phases) {
      fnv.add(name, t.every, t.offset, t.from, t.until, t.channel, t.count, t.guard, t.staleness, t.late, last);
      if (!t.chosen.empty()) fnv.add(t.chosen);
      if (t.on_call) fnv.add(actions.size());
      for (auto& a : actions) add(fnv, a);
    }
    for (auto& [axis, begin, end] : program.where) fnv.add(axis, begin, end);
    for (auto& a : program.actions) add(fnv, a);
    if (program.versions > 1) fnv.add(program.versions);
  }
  return fnv.value();
}

int add_phase(Program& program, const std::string& name, const Trigger& trigger) {
  auto at = std::ranges::find(program.phases, name, &ProgramPhase::name);
  if (at == program.phases.end()) at = program.phases.insert(at, {name, trigger});
  check(at->trigger == trigger, "plan", "program {} has a phase '{}' already that runs at other steps", program.name,
        name);
  return static_cast<int>(at - program.phases.begin());
}

void insert(Program& program, ActionId at, Action action) {
  program.actions.insert(program.actions.begin() + at, std::move(action));
  for (auto& a : program.actions)
    for (auto& id : a.after) id += id >= at;
}

}  // namespace trireme
