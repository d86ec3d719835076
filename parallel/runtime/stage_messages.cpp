#include "parallel/runtime/stage_messages.h"

#include "parallel/plan/action_kind.h"
#include "parallel/split/grid.h"

namespace trireme {
namespace {

constexpr Index most_ranges = 8;
// Of one tensor: type, rank, divided or not; of each dimension the extents of the block and of the whole; of each mesh
// axis the dimension that it divides; the ranges of the dimension that has some.
constexpr Index numbers_per_tensor = 3 + 2 * Shape::max_rank + RankMesh::max_axes + 2 + 2 * most_ranges;

}  // namespace

Tensor unfilled_metas(std::size_t tensors) {
  return Tensor::zeros({static_cast<Index>(tensors) * numbers_per_tensor}, DType::i64);
}

Tensor packed_metas(const std::vector<Tensor>& tensors) {
  const Tensor text = unfilled_metas(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    const ShardSpec* spec = t.shard_spec();
    auto* out = text.data<std::int64_t>() + static_cast<Index>(i) * numbers_per_tensor;
    *out++ = static_cast<std::int64_t>(t.dtype());
    *out++ = t.rank();
    *out++ = spec != nullptr;
    for (int d = 0; d < t.rank(); ++d) {
      *out++ = t.dim(d);
      *out++ = spec ? spec->global_shape()[d] : 0;
    }
    if (!spec) continue;
    for (const std::int8_t dim : spec->placements().dims) *out++ = dim;
    const int shared = spec->shared_dim();
    const auto ranges = shared < 0 ? std::vector<Shares::Range>{} : spec->shares(shared).ranges;
    check(std::ssize(ranges) <= most_ranges, "pipeline",
          "a tensor of {} ranges would cross a cut between stages, at most {} can: cut elsewhere", ranges.size(),
          most_ranges);
    *out++ = shared;
    *out++ = std::ssize(ranges);
    for (const Shares::Range& r : ranges) {
      *out++ = r.extent;
      *out++ = r.unit;
    }
  }
  return text;
}

std::vector<StageMessages::TensorMeta> unpacked_metas(const Tensor& text, const std::shared_ptr<const Grid>& grid,
                                                      Device device) {
  std::vector<StageMessages::TensorMeta> metas;
  for (Index at = 0; at < text.numel(); at += numbers_per_tensor) {
    const auto* in = text.data<std::int64_t>() + at;
    StageMessages::TensorMeta meta{static_cast<DType>(in[0]), {}, {}, device};
    const bool divided = in[2] == 1;
    const auto rank = static_cast<int>(in[1]);
    Shape whole;
    in += 3;
    for (int d = 0; d < rank; ++d) {
      meta.shape.push_back(*in++);
      whole.push_back(*in++);
    }
    if (divided) {
      Placements placements;
      for (std::int8_t& dim : placements.dims) dim = static_cast<std::int8_t>(*in++);
      const auto shared = static_cast<int>(*in++);
      Shares shares;
      shares.ranges.resize(static_cast<std::size_t>(*in++));
      for (Shares::Range& r : shares.ranges) {
        r.extent = *in++;
        r.unit = *in++;
      }
      meta.shard_spec = ShardSpec::make(grid, whole, placements, std::move(shares), std::max(0, shared));
    }
    metas.push_back(std::move(meta));
  }
  return metas;
}

/// Cuts are numbered equally on all ranks, because the numbers determine the tags.
StageMessages::StageMessages(const Plan& plan, Tapes& tapes, std::shared_ptr<const Grid> grid, TrafficMeter meter)
    : plan_(plan), tapes_(tapes), grid_(std::move(grid)), meter_(std::move(meter)) {
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

StageMessages::Key StageMessages::key(const Action& a) const {
  const Shape& input = tapes_.input(a.microbatch).shape();
  Key key{a.part};
  key.insert(key.end(), input.begin(), input.end());
  return key;
}

/// A tag for each cut and micro-batch: a later micro-batch may be received first.
int StageMessages::tag(const Action& a) const { return cut_of_.at(a.part) * plan_.microbatches + a.microbatch.index; }

void StageMessages::send(ActionId id, const Action& a, Communicator& comm, bool keep, std::vector<Work>& works) {
  const auto give = [&](const std::vector<Tensor>& tensors) {
    for (const Tensor& t : tensors) works.push_back(comm.send(t.detach(), comm.rank() + a.peer.offset, tag(a)));
  };
  if (a.payload == OperandKind::cotangent) {
    auto gradients = std::exchange(tapes_.boundary(a.part, a.microbatch).gradient, {});
    give(gradients);
    if (keep) sent_ = std::move(gradients);
  } else {
    sent_.clear();
    const auto& tensors = tapes_.outputs(a.part, a.microbatch);
    send_metas(a, comm, tensors, works);
    give(tensors);
  }
  sending_.push_back(id);
}

/// Sends types and shapes, unless they were sent before for this input shape.
void StageMessages::send_metas(const Action& a, Communicator& comm, const std::vector<Tensor>& tensors,
                               std::vector<Work>& works) {
  if (!metas_.try_emplace(key(a)).second) return;
  const Tensor text = packed_metas(tensors);
  const TrafficMeter::Pause setup(meter_);
  works.push_back(comm.send(text, comm.rank() + a.peer.offset, tag(a)));
}

void StageMessages::receive_metas(const Action& a, Communicator& comm) {
  const Tensor text = unfilled_metas(tapes_.tensors_behind(a.part));
  comm.recv(text, comm.rank() + a.peer.offset, tag(a)).wait();
  const std::size_t behind = std::min(static_cast<std::size_t>(a.part) + 1, plan_.parts.size() - 1);
  metas_[key(a)] = unpacked_metas(text, grid_, plan_.parts[behind].device);
}

void StageMessages::receive(const Action& a, Communicator& comm, Message& message, std::vector<Work>& works) {
  message.posted = false;
  try_to_receive(a, comm, message, works);
}

void StageMessages::try_to_receive(const Action& a, Communicator& comm, Message& message, std::vector<Work>& works) {
  const auto take = [&](Tensor into) {
    message.arriving.push_back(std::move(into));
    works.push_back(comm.recv(message.arriving.back(), comm.rank() + a.peer.offset, tag(a)));
  };
  if (a.payload == OperandKind::cotangent) {
    const auto& outputs = tapes_.outputs(a.part, a.microbatch);
    for (const Tensor& t : outputs) take(Tensor::empty(t.shape(), t.dtype(), t.device()));
    message.posted = !outputs.empty();
  } else if (const auto at = metas_.find(key(a)); at != metas_.end()) {
    for (const TensorMeta& m : at->second)
      take(Tensor::empty(m.shape, m.dtype, m.device).with_shard_spec(m.shard_spec));
    message.posted = true;
  }
}

void StageMessages::finish_receive(const Action& a, Communicator& comm, Message& message, std::vector<Work>& works) {
  if (!message.posted) try_to_receive(a, comm, message, works);
  if (!message.posted) {
    receive_metas(a, comm);
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
