#include "parallel/runtime/parts_forward.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>

#include "framework/autograd/tape.h"
#include "framework/layers/inference_cache.h"
#include "framework/tensor/fields.h"
#include "framework/tensor/storage.h"
#include "kernels/core/text.h"
#include "parallel/comm/world/compare.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/shards.h"
#include "parallel/runtime/stage_messages.h"
#include "parallel/split/split.h"

namespace trireme {
namespace {

/// The tensors behind a cut: the activation, then those of Stash layers by name.
std::vector<Tensor> tensors_at(const Tensor& y, const Stashed& stashed, const std::vector<std::string>& names) {
  std::vector<Tensor> all{y};
  for (const std::string& name : names) all.push_back(stashed.at(name));
  return all;
}

}  // namespace

PartsForward::PartsForward(const Plan& plan, int program, const Chain& chain, Parameters& parameters, Mesh& mesh,
                           Consolidator& consolidator)
    : plan_(plan), program_(program), chain_(chain), parameters_(parameters), mesh_(mesh), consolidator_(consolidator) {
  const Program& mine = plan.programs[static_cast<std::size_t>(program)];
  if (std::ranges::none_of(mine.actions, [](const Action& a) { return drops(a, OperandKind::weights); })) return;
  for (const Action& a : mine.actions)
    if (a.kind == ActionKind::update && mesh.size(a.peer.axis) > 1) sharded_.push_back(a);
}

bool PartsForward::is_needed() const {
  const auto drops_weights = [](const Program& p) {
    return std::ranges::any_of(p.actions, [](const Action& a) { return drops(a, OperandKind::weights); });
  };
  return !consolidator_.own().differ() && !consolidator_.own().served() &&
         std::ranges::all_of(plan_.programs, [](const Program& p) { return p.where.empty(); }) &&
         (plan_.has_stages() || std::ranges::any_of(plan_.programs, drops_weights));
}

Tensor PartsForward::operator()(const Tensor& x, const RunPart& run) const {
  const NoGrad nothing_recorded;
  if (sharded_.empty()) consolidator_.gather_own_weights();
  consolidator_.release();
  Tensor y = x;
  Stashed stashed;
  stashed.fields = fields_beside(x);
  std::vector<std::size_t> held;
  for (int p = 0; p < chain_.size(); ++p) {
    if (!runs(p)) continue;
    if (p > 0 && !runs(p - 1)) y = receive(p - 1, x, stashed);
    hold(p, held);
    // What it keeps of a part's weights must not outlive them.
    InferenceCache cache;
    StepContext context = StepContext::current();
    if (context.inference_cache) context.inference_cache = &cache;
    const StepScope scope(std::move(context));
    y = run(p, std::move(y), stashed);
    if (p + 1 < chain_.size() && !runs(p + 1)) send(p, y, stashed);
  }
  hold(-1, held);
  return plan_.has_stages() ? of_last_stage(y) : y;
}

void PartsForward::hold(int part, std::vector<std::size_t>& held) const {
  const auto needs = [&](std::size_t i) {
    if (part < 0) return false;
    const PartInfo& info = plan_.parts[static_cast<std::size_t>(part)];
    const Slice& slice = sharded_[i].slice;
    return slice.overlaps(info.slice) ||
           std::ranges::any_of(info.tied, [&](const Slice& t) { return slice.overlaps(t); });
  };
  std::erase_if(held, [&](std::size_t i) {
    if (needs(i)) return false;
    const Action& a = sharded_[i];
    release_values(parameters_, a.slice, shard_of(a, mesh_.index(a.peer.axis), mesh_.size(a.peer.axis)));
    return true;
  });
  std::vector<Work> works;
  for (std::size_t i = 0; i < sharded_.size(); ++i) {
    if (!needs(i) || std::ranges::find(held, i) != held.end()) continue;
    const Action& a = sharded_[i];
    restore_pages(parameters_.values(), a.slice);
    works.push_back(
        all_gather_updated(a, mesh_.comm(a.peer.axis), parameters_.values().rows(a.slice.begin, a.slice.end)));
    held.push_back(i);
  }
  for (Work& work : works) work.wait();
  for (const std::size_t i : held) parameters_.mark_released(sharded_[i].slice, false);
}

void PartsForward::send(int part, const Tensor& y, const Stashed& stashed) const {
  Communicator& stages = mesh_.comm(plan_.stage_axis);
  const std::vector<Tensor> tensors = tensors_at(y, stashed, chain_.stashed_behind(part));
  const int to = plan_.program_of(part + 1);
  stages.send(packed_metas(tensors), to).wait();
  for (const Tensor& t : tensors) stages.send(t.detach(), to).wait();
}

Tensor PartsForward::receive(int part, const Tensor& x, Stashed& stashed) const {
  Communicator& stages = mesh_.comm(plan_.stage_axis);
  const auto& names = chain_.stashed_behind(part);
  const int from = plan_.program_of(part);
  const Tensor text = unfilled_metas(1 + names.size());
  stages.recv(text, from).wait();
  std::vector<Tensor> arrived;
  for (const auto& meta :
       unpacked_metas(text, grid_of(parameters_), plan_.parts[static_cast<std::size_t>(part) + 1].device)) {
    arrived.push_back(Tensor::empty(meta.shape, meta.dtype, meta.device).with_shard_spec(meta.shard_spec));
    stages.recv(arrived.back(), from).wait();
    arrived.back().impl()->batch = x.impl()->batch;
  }
  for (std::size_t i = 0; i < names.size(); ++i) stashed[names[i]] = arrived[i + 1];
  return arrived[0];
}

Tensor PartsForward::of_last_stage(const Tensor& y) const {
  Communicator& stages = mesh_.comm(plan_.stage_axis);
  const int last = plan_.program_of(chain_.size() - 1);
  const bool mine = program_ == last;
  std::vector<Tensor> tensors;
  std::vector<std::string> names;
  if (mine) {
    tensors.push_back(y);
    for (const auto& [name, field] : y.fields()) {
      names.push_back(name);
      tensors.push_back(field);
    }
  }
  names = split_text(broadcast_text(stages, fmt::format("{}", fmt::join(names, "\n")), last), '\n');
  std::erase(names, "");
  const Tensor text = mine ? packed_metas(tensors) : unfilled_metas(1 + names.size());
  stages.broadcast(text, last).wait();
  if (!mine)
    for (const auto& meta : unpacked_metas(text, grid_of(parameters_), plan_.parts.back().device))
      tensors.push_back(Tensor::empty(meta.shape, meta.dtype, meta.device).with_shard_spec(meta.shard_spec));
  for (const Tensor& t : tensors) stages.broadcast(t.detach(), last).wait();
  if (mine) return y;
  Tensor result = tensors[0];
  for (std::size_t i = 0; i < names.size(); ++i) result = result.with(names[i], tensors[i + 1]);
  return result;
}

}  // namespace trireme
