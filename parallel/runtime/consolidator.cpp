#include "parallel/runtime/consolidator.h"
#include "parallel/async/channel_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "framework/autograd/node.h"
#include "framework/autograd/tape.h"
#include "parallel/plan/shards.h"
#include "parallel/plan/ties.h"
#include "parallel/split/split.h"
#include "parallel/strategies/on_call.h"

namespace trireme {

Consolidator::Consolidator(const Plan& plan, int program, Mesh& mesh, Optimizer& optimizer)
    : plan_(plan),
      program_(program),
      mesh_(mesh),
      parameters_(optimizer.parameters()),
      optimizer_(optimizer),
      stages_(plan.has_stages()),
      own_(plan, program, optimizer),
      keeps_shards_(keeps_shards(this->program())) {
  for (auto& a : plan.programs[static_cast<std::size_t>(program)].actions) {
    if (a.kind == ActionKind::update && mesh.size(a.peer.axis) > 1) shared_.push_back(a);
    drops_ = drops_ || drops(a, OperandKind::weights);
  }
}

void Consolidator::gather_weights() {
  if (std::exchange(weights_current_, true) || actions_on_call(program(), phases::evaluation).empty()) return;
  own_.put_aside();
  for (auto& b : parameters_.buffers()) b.tensor.impl()->released = false;
  run(phases::evaluation);
  own_current_ = true;
  parameters_.mark_released({0, parameters_.size()}, false);
  whole_ = true;
}

void Consolidator::gather_own_weights() {
  if (own_current_ || !keeps_shards_) return;
  std::vector<Work> works;
  for (const Action& a : shared_) {
    restore_pages(parameters_.values(), a.slice);
    const Tensor all = parameters_.values().rows(a.slice.begin, a.slice.end);
    works.push_back(all_gather_updated(a, mesh_.comm(a.peer.axis), all));
  }
  for (Work& work : works) work.wait();
  for (const Action& a : shared_) parameters_.mark_released(a.slice, false);
  own_current_ = true;
}

void Consolidator::end_step() {
  if (!keeps_shards_) return;
  own_current_ = false;
  for (const Action& a : shared_) {
    const Slice mine = shard_of(a, mesh_.index(a.peer.axis), mesh_.size(a.peer.axis));
    for (const Slice& others : {Slice{a.slice.begin, mine.begin}, Slice{mine.end, a.slice.end}})
      if (others.size() > 0) parameters_.mark_released(others, true);
  }
}

void Consolidator::gather_state() {
  optimizer_.keep({{0, parameters_.size()}});
  if (!std::exchange(state_current_, true)) run(phases::consolidation);
}

void Consolidator::run(const std::string& phase) {
  std::vector<Work> works;
  const auto wait = [&] {
    for (Work& work : works) work.wait();
    works.clear();
  };
  for (const Action& a : actions_on_call(program(), phase)) {
    if (mesh_.size(a.peer.axis) == 1) continue;
    if (!a.after.empty()) wait();
    Communicator& comm = mesh_.comm(a.peer.axis);
    const auto give = [&](const Tensor& all) {
      const bool mean = a.kind == ActionKind::all_reduce;
      works.push_back(mean ? comm.all_reduce(all, ReduceOp::average) : all_gather_updated(a, comm, all));
    };
    const auto rows = [&](const FlatBuffer& flat) { return flat.rows(a.slice.begin, a.slice.end); };
    if (a.payload == OperandKind::weights) {
      restore_pages(parameters_.values(), a.slice);
      give(rows(parameters_.values()));
    }
    if (a.payload == OperandKind::state)
      for (auto& [name, state] : optimizer_.state()) give(rows(state));
    Index at = 0;
    for (auto& b : parameters_.buffers()) {
      const Slice here{at, at += b.tensor.numel()};
      if (a.payload == OperandKind::statistics && a.slice.overlaps(here)) give(b.tensor);
    }
  }
  wait();
}

int Consolidator::stage_of_buffer(Index at) const {
  const auto holds = [&](const PartInfo& p) { return p.buffers.begin <= at && at < p.buffers.end; };
  return plan_.program_of(
      static_cast<int>(std::find_if(plan_.parts.begin(), plan_.parts.end(), holds) - plan_.parts.begin()));
}

void Consolidator::begin_step() {
  own_current_ = false;
  free_other_stages();
}

void Consolidator::free_other_stages() {
  weights_current_ = state_current_ = false;
  own_.restore();
  if (!stages_ || !std::exchange(whole_, false)) return;
  Index end = 0;
  auto own = plan_.updated(static_cast<std::size_t>(program_));
  own.push_back({parameters_.size(), parameters_.size()});
  for (const Slice& s : own) {
    const Slice others{end, s.begin}, none{s.begin, s.begin};
    release_values(parameters_, others, none);
    release_gradients(parameters_, others, none);
    end = s.end;
  }
  Index at = 0;  // buffers are small and stay allocated, but become stale
  for (auto& b : parameters_.buffers()) {
    b.tensor.impl()->released = b.tensor.numel() > 0 && stage_of_buffer(at) != program_;
    at += b.tensor.numel();
  }
}

void Consolidator::release() {
  free_other_stages();
  for (const Action& a : shared_)
    if (drops_) release_values(parameters_, a.slice, shard_of(a, mesh_.index(a.peer.axis), mesh_.size(a.peer.axis)));
}

CheckpointShard Consolidator::allocate() {
  end_step();
  release();
  CheckpointShard shard = checkpoint_shard();
  const std::vector<Slice> all{{0, parameters_.size()}};
  for (const Slice& s : stages_ || keeps_shards_ ? shard.holds : all) restore_pages(parameters_.values(), s);
  if (std::ranges::any_of(program().actions, [](const Action& a) { return drops(a, OperandKind::gradients); }))
    return shard;  // each backward allocates them
  const std::vector<Slice> own = stages_ ? plan_.updated(static_cast<std::size_t>(program_)) : all;
  for (const Parameters::Entry& e : parameters_.entries())
    if (overlaps(own, e.slice) && e.tensor.device().kind != DeviceKind::cpu) detail::restore_grad(e.tensor);
  return shard;
}

CheckpointShard Consolidator::checkpoint_shard() {
  if (own_.served()) {
    own_.restore();
    weights_current_ = false;
  }
  CheckpointShard s{.rank = mesh_.world().rank(), .ranks = mesh_.world().size(), .layout = to_string(mesh_.axes())};
  for (const std::string& name : plan_.strategies) s.layout += " " + name;
  for (const Program& p : plan_.programs)
    for (const auto& [axis, begin, end] : p.where) s.layout += fmt::format(" {}[{}, {})", axis, begin, end);
  // Whether this rank is the first of those that hold the same part of a tensor. Other ranks along these axes (and in
  // other stages) hold other parts.
  const std::string stages = stages_ ? "+" + plan_.stage_axis : "";
  const auto first = [&](const Tensor& t, const std::string& axes) {
    const std::string apart = stages + "+" + axes + "+" + divided_over(t) + "+";
    return std::ranges::all_of(mesh_.axes(), [&](const Axis& a) {
      return mesh_.index(a.name) == plan_.range(program(), a.name).begin ||
             apart.find("+" + a.name + "+") != std::string::npos;
    });
  };
  const auto add = [&](std::vector<Slice>& to, const Slice& held, const Parameters::Entry& e, const std::string& axes) {
    const Slice both{std::max(held.begin, e.slice.begin), std::min(held.end, e.slice.end)};
    if (both.size() > 0 && first(e.tensor, axes)) to.push_back(both);
  };
  auto own = plan_.updated(static_cast<std::size_t>(program_));
  const auto copies = copies_in(plan_, static_cast<std::size_t>(program_));
  for (const Action& a : program().actions) {
    if (receives_weights(a)) {
      s.holds.push_back(a.slice);
      own.push_back(a.slice);
    }
    if (a.kind != ActionKind::update) continue;
    const int ranks = mesh_.size(a.peer.axis);
    const Slice shard = ranks > 1 ? shard_of(a, mesh_.index(a.peer.axis), ranks) : a.slice;
    const Slice weights = keeps_shards_ ? shard : a.slice;
    s.holds.push_back(weights);
    if (overlaps(copies, a.slice)) continue;  // their owner writes them
    for (const Parameters::Entry& e : parameters_.entries()) {
      add(s.writes, weights, e, keeps_shards_ ? a.peer.axis : "");
      add(s.writes_state, shard, e, a.peer.axis);
    }
  }
  for (auto* slices : {&s.holds, &s.writes, &s.writes_state}) *slices = detail::joined(std::move(*slices));
  // A slice of this rank's separate state, by device; it is at `from` in the buffer.
  const auto add_local = [&](const std::string& name, const FlatBuffer& flat, const Slice& slice, Index from) {
    for (const Slice& part : flat.cut({from, from + slice.size()}))
      s.local[fmt::format("{}.{}", name, slice.begin + part.begin - from)] = flat.rows(part.begin, part.end);
  };
  const auto& buffers = parameters_.buffers();
  own = detail::joined(std::move(own));
  for (const State& state : plan_.state) {
    if (state.saved && state.replicated) s.states.push_back(state.name);
    for (const Slice& u : own)
      if (state.saved && !state.replicated) add_local("state." + state.name, parameters_.state(state.name), u, u.begin);
  }
  for (std::size_t i = 0; own_.differ() && !program().serves() && i < buffers.size(); ++i)
    if (buffers[i].tensor.numel() > 0) s.local[fmt::format("statistics.{}", i)] = own_.buffer(i);
  for (const Slice& u : own_.differ() ? own : std::vector<Slice>{}) {  // ranks train separately between averages
    for (const Slice& part : parameters_.values().cut(u))
      s.local[fmt::format("weights.{}", part.begin)] = own_.weights(part);
    Index from = 0;  // offset of a kept slice in the state
    for (const Slice& kept : optimizer_.kept()) {
      if (kept.begin <= u.begin && u.end <= kept.end)
        for (auto& [name, state] : optimizer_.state())
          add_local("optimizer." + name, state, u, from + u.begin - kept.begin);
      from += kept.size();
    }
  }
  Index at = 0;
  for (const Parameters::Buffer& b : buffers) {
    const bool here = !stages_ || b.tensor.numel() == 0 || stage_of_buffer(at) == program_;
    s.holds_buffers.push_back(here);
    s.writes_buffers.push_back(here && !program().serves() && first(b.tensor, ""));
    at += b.tensor.numel();
  }
  return s;
}

}  // namespace trireme
