#include "parallel/runtime/stage_messages.h"

#include "parallel/plan/action_kind.h"

namespace trireme {

/// Cuts are numbered equally on all ranks, because the numbers determine the tags.
StageMessages::StageMessages(const Plan& plan, Tapes& tapes, std::shared_ptr<const Grid> grid, TrafficMeter meter)
    : plan_(plan), tapes_(tapes), p2p_(std::move(grid), std::move(meter)) {
  for (const Program& program : plan.programs)
    for (const Action& a : program.actions)
      if (is_message(a)) cut_of_.emplace(a.part, 0);
  int cuts = 0;
  for (auto& [part, cut] : cut_of_) cut = cuts++;
  check(static_cast<Index>(cuts) * plan.microbatches <= message_tags, "executor",
        "{} cuts of the model times {} micro-batches are more than the {} tags that messages have: use at most {} "
        "micro-batches",
        cuts, plan.microbatches, message_tags, message_tags / std::max(cuts, 1));
}

PipelineP2P::Route StageMessages::route(const Action& a, Communicator& comm) const {
  // Activations arrive from the part before the cut.
  const std::size_t behind = std::min(static_cast<std::size_t>(a.part) + 1, plan_.parts.size() - 1);
  return {.comm = &comm,
          .peer = comm.rank() + a.peer.offset,
          .part = a.part,
          .tag = cut_of_.at(a.part) * plan_.microbatches + a.microbatch.index,
          .device = plan_.parts[behind].device};
}

void StageMessages::send(ActionId id, const Action& a, Communicator& comm, bool keep, std::vector<Work>& works) {
  if (a.payload == OperandKind::cotangent) {
    auto gradients = std::exchange(tapes_.boundary(a.part, a.microbatch).gradient, {});
    PipelineP2P::send(route(a, comm), gradients, works);
    if (keep) sent_ = std::move(gradients);
  } else {
    sent_.clear();
    const auto& tensors = tapes_.outputs(a.part, a.microbatch);
    p2p_.send_meta(route(a, comm), tapes_.input(a.microbatch).shape(), tensors, works);
    PipelineP2P::send(route(a, comm), tensors, works);
  }
  sending_.push_back(id);
}

void StageMessages::receive(const Action& a, Communicator& comm, Message& message, std::vector<Work>& works) {
  message.posted = false;
  try_to_receive(a, comm, message, works);
}

void StageMessages::try_to_receive(const Action& a, Communicator& comm, Message& message, std::vector<Work>& works) {
  const PipelineP2P::Route from = route(a, comm);
  if (a.payload == OperandKind::cotangent) {
    std::vector<PipelineP2P::TensorMeta> metas;
    for (auto& t : tapes_.outputs(a.part, a.microbatch)) metas.push_back({t.dtype(), t.shape(), {}, t.device()});
    message.posted = !metas.empty();
    PipelineP2P::receive(from, metas, message.arriving, works);
  } else if (auto* metas = p2p_.find_meta(from, tapes_.input(a.microbatch).shape())) {
    message.posted = true;
    PipelineP2P::receive(from, *metas, message.arriving, works);
  }
}

void StageMessages::finish_receive(const Action& a, Communicator& comm, Message& message, std::vector<Work>& works) {
  if (!message.posted) try_to_receive(a, comm, message, works);
  if (!message.posted) {
    p2p_.recv_meta(route(a, comm), tapes_.input(a.microbatch).shape(), tapes_.tensors_behind(a.part));
    try_to_receive(a, comm, message, works);
  }
  for (Work& work : works) work.wait();
  works.clear();
  BoundaryTensors& boundary = tapes_.boundary(a.part, a.microbatch);
  if (a.payload == OperandKind::cotangent) {
    boundary.gradient = std::exchange(message.arriving, {});
    return;
  }
  for (Tensor& t : message.arriving) t.require_grad(is_float(t.dtype()));
  boundary.forward = std::exchange(message.arriving, {});
}

}  // namespace trireme
