#include "parallel/runtime/consolidator.h"

#include <fmt/format.h>

#include <algorithm>

#include "framework/autograd/tape.h"
#include "parallel/comm/world/compare.h"
#include "parallel/plan/shards.h"
#include "parallel/split/split.h"

namespace trireme {

Consolidator::Consolidator(const Plan& plan, int program, Mesh& mesh, Optimizer& optimizer, Communicator* stages)
    : plan_(plan),
      program_(program),
      mesh_(mesh),
      parameters_(optimizer.parameters()),
      optimizer_(optimizer),
      stages_(stages),
      served_(plan, program, mesh, optimizer) {
  for (auto& a : plan.programs[static_cast<std::size_t>(program)].actions) {
    if (a.kind == ActionKind::update && mesh.size(a.peer.axis) > 1) shared_.push_back(a);
    drops_ = drops_ || a.kind == ActionKind::drop_values;
  }
  differ_ = std::ranges::any_of(plan.consistency, [&](auto& axis) {
    return axis.second.kind != Consistency::Kind::synchronous && mesh.size(axis.first) > 1;
  });
}

void Consolidator::consolidate() {
  optimizer_.keep({{0, parameters_.size()}});
  if ((!stages_ && shared_.empty() && !served_.any()) || std::exchange(current_, true)) return;
  std::vector<Work> works;
  served_.gather();
  for (const Action& update : shared_) {  // over the update's own axis, which image axes may be joined to
    const auto give = [&, comm = &mesh_.comm(update.peer.axis)](const FlatBuffer& flat) {
      works.push_back(all_gather_updated(update, *comm, flat.rows(update.slice.begin, update.slice.end)));
    };
    if (drops_) give(parameters_.values());
    for (auto& [name, state] : optimizer_.state()) give(state);
  }
  for (auto& work : works) work.wait();
  for (const Action& update : shared_) parameters_.mark_released(update.slice, false);
  if (stages_) gather_stages();
}

int Consolidator::stage_of_buffer(Index at) const {
  const auto holds = [&](const PartInfo& p) { return p.buffers.begin <= at && at < p.buffers.end; };
  return plan_.program_of(
      static_cast<int>(std::find_if(plan_.parts.begin(), plan_.parts.end(), holds) - plan_.parts.begin()));
}

void Consolidator::gather_stages() {
  whole_ = true;
  std::vector<Work> works;
  const auto copy = [&](const Tensor& t, int stage) { works.push_back(stages_->broadcast(t, stage)); };
  for (int r = 0; r < stages_->size(); ++r)
    for (const Slice& s : plan_.updated(static_cast<std::size_t>(r))) {
      copy(parameters_.values().rows(s.begin, s.end), r);
      for (auto& [name, state] : optimizer_.state()) copy(state.rows(s.begin, s.end), r);
    }
  Index at = 0;
  for (auto& b : parameters_.buffers()) {
    b.tensor.impl()->released = false;
    if (b.tensor.numel() > 0) copy(b.tensor, stage_of_buffer(at));
    at += b.tensor.numel();
  }
  for (auto& work : works) work.wait();
  parameters_.mark_released({0, parameters_.size()}, false);
}

void Consolidator::begin_step() {
  current_ = false;
  served_.restore();
  if (!stages_ || !std::exchange(whole_, false)) return;
  Index end = 0;
  auto own = plan_.updated(static_cast<std::size_t>(program_));
  own.push_back({parameters_.size(), parameters_.size()});
  for (const Slice& s : own) {
    const Slice others{end, s.begin}, none{s.begin, s.begin};
    release_values(parameters_, others, none), release_pages(parameters_.grads(), others, none);
    end = s.end;
  }
  Index at = 0;  // buffers are small, and stay where they are, but go stale
  for (auto& b : parameters_.buffers()) {
    b.tensor.impl()->released = b.tensor.numel() > 0 && stage_of_buffer(at) != program_;
    at += b.tensor.numel();
  }
}

void Consolidator::release() {
  begin_step();
  for (const Action& a : shared_)
    if (drops_) release_values(parameters_, a.slice, shard_of(a, mesh_.index(a.peer.axis), mesh_.size(a.peer.axis)));
}

CheckpointShard Consolidator::checkpoint_shard(Communicator& everyone) {
  if (served_.any()) served_.restore(), current_ = false;
  CheckpointShard s{.rank = mesh_.world().rank(), .ranks = mesh_.world().size(), .layout = to_string(mesh_.axes())};
  for (const std::string& name : plan_.strategies) s.layout += " " + name;
  for (const Program& p : plan_.programs)
    for (const auto& [axis, begin, end] : p.where) s.layout += fmt::format(" {}[{}, {})", axis, begin, end);
  s.all_gather = [&everyone](const std::string& mine) { return gather_texts(everyone, mine); };
  // Whether this rank is the first of those that hold the same part of a tensor, which other ranks along these axes
  // (and in other stages) have other parts of.
  const Program& program = plan_.programs[static_cast<std::size_t>(program_)];
  const std::string stages = stages_ ? "+" + plan_.stage_axis : "";
  const auto first = [&](const Tensor& t, const std::string& axes) {
    const std::string apart = stages + "+" + axes + "+" + divided_over(t) + "+";
    return std::ranges::all_of(mesh_.axes(), [&](const Axis& a) {
      return mesh_.index(a.name) == plan_.range(program, a.name).begin ||
             apart.find("+" + a.name + "+") != std::string::npos;
    });
  };
  const auto add = [&](std::vector<Slice>& to, const Slice& held, const Parameters::Entry& e, const std::string& axes) {
    const Slice both{std::max(held.begin, e.slice.begin), std::min(held.end, e.slice.end)};
    if (both.size() > 0 && first(e.tensor, axes)) to.push_back(both);
  };
  auto own = plan_.updated(static_cast<std::size_t>(program_));
  for (const Action& a : program.actions) {
    if (a.kind == ActionKind::pull && a.field == "weights") s.holds.push_back(a.slice), own.push_back(a.slice);
    if (a.kind != ActionKind::update) continue;
    const int ranks = mesh_.size(a.peer.axis);
    const Slice shard = ranks > 1 ? shard_of(a, mesh_.index(a.peer.axis), ranks) : a.slice;
    const Slice weights = drops_ ? shard : a.slice;
    s.holds.push_back(weights);
    for (const Parameters::Entry& e : parameters_.entries())
      add(s.writes, weights, e, drops_ ? a.peer.axis : ""), add(s.writes_state, shard, e, a.peer.axis);
  }
  for (auto* slices : {&s.holds, &s.writes, &s.writes_state}) *slices = detail::joined(std::move(*slices));
  // A slice of what this rank has for itself, per device; it lies at `from` of the buffer.
  const auto add_local = [&](const std::string& name, const FlatBuffer& flat, const Slice& slice, Index from) {
    for (const Slice& part : flat.cut({from, from + slice.size()}))
      s.local[fmt::format("{}.{}", name, slice.begin + part.begin - from)] = flat.rows(part.begin, part.end);
  };
  own = detail::joined(std::move(own));
  for (const State& state : plan_.state) {
    if (state.saved && state.extent == State::Extent::replicated) s.states.push_back(state.name);
    for (const Slice& u : own)
      if (state.saved && state.extent == State::Extent::own)
        add_local("state." + state.name, parameters_.state(state.name), u, u.begin);
  }
  for (const Slice& u : differ_ ? own : std::vector<Slice>{}) {  // ranks train for themselves between averages
    add_local("weights", parameters_.values(), u, u.begin);
    Index from = 0;  // of a kept slice in the state
    for (const Slice& kept : optimizer_.kept()) {
      if (kept.begin <= u.begin && u.end <= kept.end)
        for (auto& [name, state] : optimizer_.state())
          add_local("optimizer." + name, state, u, from + u.begin - kept.begin);
      from += kept.size();
    }
  }
  Index at = 0;
  for (const Parameters::Buffer& b : parameters_.buffers()) {
    const bool here = !stages_ || b.tensor.numel() == 0 || stage_of_buffer(at) == program_;
    s.holds_buffers.push_back(here);
    s.writes_buffers.push_back(here && !program.serves() && first(b.tensor, ""));
    at += b.tensor.numel();
  }
  return s;
}

}  // namespace trireme
