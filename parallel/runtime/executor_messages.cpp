// The executor's messages over cuts between pipeline stages.
#include "parallel/runtime/executor.h"

#include <algorithm>

#include "parallel/plan/action_kind.h"

namespace trireme {

PipelineP2P::Route Executor::route(const Action& a, const Slot& s) const {
  // Activations arrive from the part in front of the cut.
  const std::size_t behind = std::min(static_cast<std::size_t>(a.part) + 1, plan_.parts.size() - 1);
  return {.comm = s.comm,
          .peer = s.comm->rank() + a.peer.offset,
          .part = a.part,
          .tag = cut_of_.at(a.part) * plan_.microbatches + a.microbatch.index,
          .device = plan_.parts[behind].device};
}

// A program sends on what its part in front of the cut made, or sends back the gradient of what it was given there.
Work Executor::send(ActionId id) {
  const Action& a = action(id);
  Slot& s = slot(id);
  finish(id);  // of the step before, where it was sent ahead
  if (!tapes_.runs(a.part)) {
    auto gradients = std::exchange(tapes_.boundary(a.part, a.microbatch).gradient, {});
    PipelineP2P::send(route(a, s), gradients, s.works);
    if (recorder_) sent_ = std::move(gradients);  // where the peer is late they live as long: its memory, not its luck
  } else {
    sent_.clear();
    const auto& tensors = tapes_.outputs(a.part, a.microbatch);
    p2p_.send_meta(route(a, s), tapes_.input(a.microbatch).shape(), tensors, s.works);
    PipelineP2P::send(route(a, s), tensors, s.works);
  }
  s.pending = true;
  sending_.push_back(id);
  finish_sends();
  return {};
}

/// Ends the sends that are done, so that what they hold is free again.
void Executor::finish_sends() {
  std::erase_if(sending_, [&](ActionId id) {
    auto& works = slot(id).works;
    const bool all = std::all_of(works.begin(), works.end(), [](Work& w) { return w.done(); });
    if (all) finish(id);
    return all;
  });
}

Work Executor::receive(ActionId id) {
  slot(id).posted = false;
  try_to_receive(action(id), slot(id));
  return {};
}

/// Starts to receive where the kinds are known; else finish_receive() will.
void Executor::try_to_receive(const Action& a, Slot& s) {
  if (tapes_.runs(a.part)) {
    std::vector<PipelineP2P::TensorMeta> metas;
    for (auto& t : tapes_.outputs(a.part, a.microbatch)) metas.push_back({t.dtype(), t.shape(), {}, t.device()});
    s.posted = !metas.empty();
    PipelineP2P::receive(route(a, s), metas, s.arriving, s.works);
  } else if (auto* metas = p2p_.find_meta(route(a, s), tapes_.input(a.microbatch).shape())) {
    s.posted = true;
    PipelineP2P::receive(route(a, s), *metas, s.arriving, s.works);
  }
}

void Executor::end_receive(ActionId id) {
  const Action& a = action(id);
  Slot& s = slot(id);
  if (!s.posted) try_to_receive(a, s);
  if (!s.posted) {
    p2p_.recv_meta(route(a, s), tapes_.input(a.microbatch).shape(), tapes_.tensors_behind(a.part));
    try_to_receive(a, s);
  }
  for (Work& work : s.works) work.wait();
  s.works.clear();
  BoundaryTensors& boundary = tapes_.boundary(a.part, a.microbatch);
  if (tapes_.runs(a.part)) {
    boundary.gradient = std::exchange(s.arriving, {});
    return;
  }
  for (Tensor& t : s.arriving) t.require_grad(is_float(t.dtype()));
  boundary.forward = std::exchange(s.arriving, {});
}

}  // namespace trireme
