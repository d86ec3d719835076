// Layer pipelining: stages of consecutive parts on the ranks of an axis. Micro-batches flow through them in the order
// of a schedule.
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <ranges>

#include "parallel/strategies/partition.h"
#include "parallel/strategies/rebuild.h"
#include "parallel/strategies/schedules.h"

namespace trireme {
namespace {

/// Converts one program's cells to actions: messages to and from neighbouring stages, the passes of each part, and the
/// end of each micro-batch.
class Lowering {
 public:
  /// starts: first part of each stage, then the number of parts.
  Lowering(const Plan& plan, const PipelineSchedule& schedule, const PipelineShape& shape,
           const std::vector<int>& starts, const std::string& axis, int program)
      : plan_(plan),
        schedule_(schedule),
        shape_(shape),
        starts_(starts),
        axis_(axis),
        r_(program),
        turns_(schedule.folds && program + 1 == shape.programs) {}

  Program run(const std::vector<Cell>& cells, int in_flight) {
    program_ = {fmt::format("stage {}", r_), {}, in_flight};
    bool updates = false;
    ActionId arriving = cells.empty() ? -1 : receive(cells[0]);
    for (std::size_t i = 0; i < cells.size(); ++i) {
      // Receives the input of the next cell while this one computes.
      const ActionId next = i + 1 < cells.size() ? receive(cells[i + 1]) : -1;
      if (cells[i].kind == ActionKind::update) {
        update(cells[i]);
        updates = true;
      } else
        pass(cells[i], arriving);
      arriving = next;
      program_.versions = std::max(program_.versions, 1 + cells[i].version);
    }
    for (int c = 0; c < (turns_ ? 1 : shape_.chunks) && !updates; ++c) update({ActionKind::update, c});
    if (std::ranges::find(program_.actions, ActionKind::update, &Action::kind) == program_.actions.end())
      program_.versions = 1;  // the program has no weights
    return std::move(program_);
  }

 private:
  int stage(const Cell& c) const { return stage_of(schedule_, shape_, r_, c.chunk); }
  int last_stage(const Cell& c) const { return stage(c) + (turns_ ? 1 : 0); }
  int first(const Cell& c) const { return starts_[stage(c)]; }
  int end(const Cell& c) const { return starts_[last_stage(c) + 1]; }

  ActionId add(Action a) {
    std::erase(a.after, -1);
    program_.actions.push_back(std::move(a));
    return static_cast<ActionId>(program_.actions.size()) - 1;
  }
  /// A message of the cell's pass over the cut before its stage (step -1) or after it (1), from or to the neighbouring
  /// stage; -1: there is no such cut.
  ActionId message(ActionKind kind, const Cell& c, int step, ActionId after = -1) {
    const int part = step < 0 ? first(c) - 1 : end(c) - 1;
    if (part < 0 || part + 1 == std::ssize(plan_.parts)) return -1;
    Action a{kind, Stream::comm, part, c.microbatch};
    a.peer = {axis_, program_of(schedule_, shape_, (step < 0 ? stage(c) : last_stage(c)) + step) - r_};
    a.after = {after};
    a.payload = c.kind == ActionKind::forward ? OperandKind::activation : OperandKind::cotangent;
    return add(std::move(a));
  }
  ActionId receive(const Cell& c) {
    if (c.kind == ActionKind::backward_weight || c.kind == ActionKind::update) return -1;
    return message(ActionKind::recv, c, c.kind == ActionKind::forward ? -1 : 1);
  }

  void update(const Cell& c) {
    const Slice slice{plan_.parts[first(c)].slice.begin, plan_.parts[end(c) - 1].slice.end};
    if (slice.size() > 0) add({.kind = ActionKind::update, .microbatch = c.microbatch, .slice = slice});
  }
  void pass(const Cell& c, ActionId arriving) {
    const bool forward = c.kind == ActionKind::forward;
    ActionId last = -1;
    for (int i = first(c); i < end(c); ++i) {
      Action a{.kind = c.kind, .part = forward ? i : first(c) + end(c) - 1 - i, .microbatch = c.microbatch};
      a.after = {std::exchange(arriving, -1)};
      a.version = c.version;
      last = add(std::move(a));
    }
    ActionId sent = -1;
    if (c.kind != ActionKind::backward_weight) sent = message(ActionKind::send, c, forward ? 1 : -1, last);
    if (forward && sent < 0) add({.kind = ActionKind::loss, .microbatch = c.microbatch});
    if (forward) sent_[{c.chunk, c.microbatch}] = sent;
    if (forward || c.kind == ActionKind::backward_input) return;
    Action free{.kind = ActionKind::free, .part = end(c) - 1, .microbatch = c.microbatch};
    if (const auto at = sent_.find({c.chunk, c.microbatch}); at != sent_.end()) free.after = {at->second};
    add(std::move(free));
  }

  const Plan& plan_;
  const PipelineSchedule& schedule_;
  PipelineShape shape_;
  const std::vector<int>& starts_;
  std::string axis_;
  int r_;
  bool turns_;  // the last program of a V: its two stages are one chunk
  Program program_;
  std::map<std::pair<int, MicroBatch>, ActionId> sent_;  // activations, by chunk and micro-batch
};

/// The largest number of micro-batches whose activations a stage holds at once.
int alive_in(const PipelineSchedule& schedule, const PipelineShape& shape, int stage) {
  const int program = program_of(schedule, shape, stage);
  if (!schedule.folds) return (schedule.in_flight(shape, program) + shape.chunks - 1) / shape.chunks;
  return most_alive(schedule.cells(shape, program), stage < shape.programs || program + 1 == shape.programs ? 0 : 1);
}

std::vector<int> cut(const Plan& plan, const PipelineShape& shape, const PipelineSchedule& schedule,
                     const PipelineOptions& o) {
  const int stages = shape.programs * shape.chunks, parts = static_cast<int>(plan.parts.size());
  check(stages <= parts, "pipeline", "{} stages, but the model has only {} parts ({}): use at most {}{}", stages, parts,
        fmt::join(plan.parts | std::views::transform(&PartInfo::name), ", "), parts,
        parts == 1 ? ", or make the model a Sequential, between whose layers it is cut" : "");
  if (o.partition == "even") return cut_evenly(parts, stages);
  if (o.partition != "auto") return cut_by_name(plan.parts, stages, o.partition);
  if (!plan.partition.empty()) return cut_by_name(plan.parts, stages, plan.partition);
  std::vector<int> alive;  // micro-batches, by stage
  for (int s = 0; s < stages; ++s) alive.push_back(alive_in(schedule, shape, s));
  return cut_by_cost(plan.parts, {.stages = stages,
                                  .bandwidth = o.bandwidth,
                                  .memory = o.memory / shape.chunks,
                                  .in_flight = [&](int stage) { return alive[stage]; }});
}

Plan rewrite(Plan plan, const PipelineOptions& o, const PipelineSchedule& schedule) {
  const PipelineShape shape{.programs = plan.size(o.axis), .microbatches = o.micro, .chunks = o.chunks};
  if (shape.programs == 1) return repeat(std::move(plan), o.micro, "pipeline");
  check_untouched(plan, "pipeline");
  check_shape(schedule, shape);
  std::vector<int> starts = cut(plan, shape, schedule, o);
  plan.partition.clear();
  for (std::size_t s = 1; s < starts.size(); ++s) plan.partition += (s > 1 ? ", " : "") + plan.parts[starts[s]].name;
  starts.push_back(static_cast<int>(plan.parts.size()));
  std::vector<Program> programs;
  for (int r = 0; r < shape.programs; ++r)
    programs.push_back(
        Lowering(plan, schedule, shape, starts, o.axis, r).run(schedule.cells(shape, r), schedule.in_flight(shape, r)));
  plan.programs = std::move(programs);
  plan.stage_axis = o.axis;
  plan.microbatches = o.micro;
  if (schedule.delay) plan.consistency[o.axis] = {Consistency::Kind::stale, schedule.delay(shape)};
  return with_tied_sums(std::move(plan));
}

}  // namespace

Strategy pipeline(PipelineOptions o) { return pipeline(o, find_schedule(o.schedule)); }

Strategy pipeline(PipelineOptions o, const PipelineSchedule& schedule) {
  check(o.micro >= 1 && o.chunks >= 1, "pipeline", "micro={}, chunks={}, but both are at least 1: use larger numbers",
        o.micro, o.chunks);
  check(o.partition == "auto" || (o.memory == 0 && o.bandwidth == PipelineOptions().bandwidth), "pipeline",
        "memory={} and bandwidth={} need partition=auto, but partition is {}: leave them out, or use partition=auto",
        o.memory, o.bandwidth, o.partition);
  // Refuses at once what needs no mesh. micro and chunks must fit one program here.
  check_shape(schedule, {.programs = 1, .microbatches = o.micro, .chunks = o.chunks});
  Strategy s(
      "pipeline", schedule.delay ? Claim::delayed : Claim::exact,
      [o, schedule](Plan plan) { return rewrite(std::move(plan), o, schedule); },
      fmt::format("micro={}, schedule={}, chunks={}, partition=\"{}\", axis={}, memory={}, bandwidth={}", o.micro,
                  schedule.name, o.chunks, o.partition, o.axis, o.memory, o.bandwidth),
      StrategyOrder::stages);
  s.wants_costs = o.partition == "auto";
  if (schedule.delay) s.norm_scope = NormScope::local;
  return s;
}

}  // namespace trireme
