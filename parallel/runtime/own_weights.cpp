#include "parallel/runtime/own_weights.h"
#include "parallel/async/channel_plan.h"

#include <algorithm>

#include "framework/autograd/tape.h"
#include "parallel/plan/action_kind.h"

namespace trireme {

OwnWeights::OwnWeights(const Plan& plan, int program, Optimizer& optimizer)
    : optimizer_(optimizer),
      served_(std::ranges::any_of(plan.programs, &Program::serves)),
      serves_(plan.programs[static_cast<std::size_t>(program)].serves()),
      differ_(std::ranges::any_of(plan.consistency, [&](const auto& axis) {
        const bool stages = axis.first == plan.stage_axis && plan.has_stages();  // stages have different weights anyway
        return axis.second.kind != Consistency::Kind::synchronous && plan.size(axis.first) > 1 && !stages;
      })) {
  if (!differ_) return;
  std::vector<Slice> all;
  if (!served_) all = plan.updated(static_cast<std::size_t>(program));
  for (const Action& a : plan.programs[static_cast<std::size_t>(program)].actions)
    if (receives_weights(a)) all.push_back(a.slice);
  for (const Slice& s : detail::joined(std::move(all)))
    for (const Slice& part : store().values().cut(s)) slices_.push_back(part);
}

void OwnWeights::put_aside() {
  if ((!served_ && !differ_) || serves_ || !weights_.empty() || !buffers_.empty()) return;
  const NoGrad off;
  for (const Slice& s : slices_) weights_.push_back(store().values().rows(s.begin, s.end).clone());
  for (const auto& b : store().buffers()) buffers_.push_back(b.tensor.detach().clone());
}

void OwnWeights::restore() {
  const NoGrad off;
  for (std::size_t i = 0; i < weights_.size(); ++i)
    store().values().rows(slices_[i].begin, slices_[i].end).copy_from(weights_[i]);
  for (std::size_t i = 0; i < buffers_.size(); ++i) store().buffers()[i].tensor.detach().copy_from(buffers_[i]);
  weights_.clear();
  buffers_.clear();
}

Tensor OwnWeights::weights(const Slice& s) const {
  for (std::size_t i = 0; i < weights_.size(); ++i)
    if (slices_[i].begin <= s.begin && s.end <= slices_[i].end)
      return weights_[i].view_rows(s.begin - slices_[i].begin, s.end - slices_[i].begin);
  return store().values().rows(s.begin, s.end);
}

Tensor OwnWeights::buffer(std::size_t index) const {
  return buffers_.empty() ? store().buffers()[index].tensor : buffers_[index];
}

}  // namespace trireme
