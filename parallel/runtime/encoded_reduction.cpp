#include "parallel/runtime/encoded_reduction.h"

#include "framework/autograd/tape.h"
#include "framework/tensor/launch.h"
#include "framework/tensor/memory_tracker.h"
#include "kernels/contracts/elementwise.h"
#include "parallel/plan/action_kind.h"

namespace trireme {
namespace {

/// The tensor t; if the codec computes on the host and t is on a device, a copy on the host.
Tensor placed(const Tensor& t, const Codec& codec) {
  return t && codec.on_host && t.device().kind != DeviceKind::cpu ? t.detach().to(cpu()) : t;
}
void write_back(const Tensor& t, const Tensor& copy) {
  if (t && copy.id() != t.id()) t.copy_from(copy);
}
/// Replaces t unless it has this shape, type and device.
void fit(Tensor& t, const Shape& shape, DType type, Device device) {
  if (!t || !(t.shape() == shape) || t.dtype() != type || !(t.device() == device))
    t = Tensor::empty(shape, type, device);
}

}  // namespace

/// Calls f(context, numbers, wire) with all tensors on the codec's device.
template <class F>
void EncodedReduction::run(const F& f, const Tensor& wire) {
  const NoGrad off;
  CodecContext here = *now_;
  for (Tensor& state : here.states) state = placed(state, *now_->action.codec);
  f(here, numbers_, wire);
  for (std::size_t i = 0; i < here.states.size(); ++i) write_back(now_->states[i], here.states[i]);
}

Work EncodedReduction::start(Communicator& comm, CodecContext now, const Tensor& x) {
  const MemoryScope packed(MemoryKind::packed);
  check(x.dtype() == DType::f32 || x.dtype() == DType::f64, "codec",
        "{} encodes gradients of f32 or f64, got {}: use another dtype, or leave compress out", now.action.codec->name,
        x.dtype());
  now_.emplace(std::move(now));
  now_->ranks = comm.size();
  before_.resize(now_->states.size());
  for (std::size_t i = 0; i < before_.size(); ++i) {
    const Tensor& state = now_->states[i];
    if (state && before_[i]) before_[i].copy_from(state);
    if (state && !before_[i]) before_[i] = state.clone();
  }
  wires_.resize(static_cast<std::size_t>(now_->action.codec->rounds));
  numbers_ = placed(x, *now_->action.codec);
  return send(comm);
}

Work EncodedReduction::send(Communicator& comm) {
  const Codec& codec = *now_->action.codec;
  Tensor& mine = wires_[static_cast<std::size_t>(now_->round)];
  fit(mine, {codec.length(*now_)}, codec.wire.value_or(numbers_.dtype()), numbers_.device());
  run(codec.encode, mine);
  if (now_->action.kind == ActionKind::reduce_scatter) return scatter(comm);
  if (mine.numel() == 0) return {};
  if (codec.is_summable) return comm.all_reduce(mine);
  fit(all_, {comm.size(), mine.numel()}, mine.dtype(), mine.device());
  return comm.all_gather(all_, mine);
}

/// Sends each rank its shard, and all ranks the remainder of fewer numbers than ranks.
Work EncodedReduction::scatter(Communicator& comm) {
  const Tensor& mine = wires_.front();
  const Index n = mine.numel(), each = n / comm.size(), even = each * comm.size();
  check(n == numbers_.numel(), "codec", "{} encodes {} numbers to {}, expected one element for each: is_elementwise",
        now_->action.codec->name, numbers_.numel(), n);
  fit(all_, {even}, mine.dtype(), mine.device());
  fit(rest_, {comm.size() * (n - even)}, mine.dtype(), mine.device());
  Work shares, rest;
  if (each > 0) shares = comm.all_to_all(all_, mine.view_rows(0, even));
  if (even < n) rest = comm.all_gather(rest_, mine.view_rows(even, n));
  return when_all({std::move(shares), std::move(rest)});
}

/// Sums the parts of all ranks in their order, in the type of the numbers.
void EncodedReduction::sum_parts(const Communicator& comm) {
  const NoGrad off;
  const Index n = numbers_.numel(), each = n / comm.size(), even = each * comm.size();
  const auto sum = [&](const Tensor& parts, const Tensor& to) {
    if (to.numel() == 0) return;
    const Codec& codec = *now_->action.codec;
    CodecContext of_part = *now_;
    of_part.size = to.numel();
    of_part.tensors.clear();
    of_part.states.clear();
    launch<kernel::Fill>(to, 0.0);
    const Tensor part = codec.is_summable ? Tensor::like(to) : to;  // decode() sets the part, or adds to it
    for (int& r = of_part.rank = 0; r < comm.size(); ++r) {
      codec.decode(of_part, parts.view_rows(r * to.numel(), (r + 1) * to.numel()), part);
      if (codec.is_summable) add_into(to, part);
    }
  };
  sum(all_, numbers_.view_rows(comm.rank() * each, (comm.rank() + 1) * each));
  sum(rest_, numbers_.view_rows(even, n));
}

void EncodedReduction::finish(Communicator& comm, const Tensor& x) {
  const MemoryScope packed(MemoryKind::packed);
  const Codec& codec = *now_->action.codec;
  const auto decode = [&](const CodecContext& now, const Tensor& numbers, const Tensor& wire) {
    codec.decode(now, wire, numbers);
  };
  if (now_->action.kind == ActionKind::reduce_scatter) {
    sum_parts(comm);
    write_back(x, numbers_);
    numbers_ = {};
    return;
  }
  while (now_->round + 1 < codec.rounds) {
    now_->sums.push_back(wires_[static_cast<std::size_t>(now_->round++)]);
    send(comm).wait();
  }
  if (!codec.is_summable) launch<kernel::Fill>(numbers_, 0.0);
  const Tensor& last = wires_.back();
  for (int r = 0; r < comm.size() && !codec.is_summable; ++r) {
    now_->rank = r;
    run(decode, last.numel() > 0 ? all_.view_rows(r, r + 1).reshape({last.numel()}) : last);
  }
  if (codec.is_summable) run(decode, last);
  write_back(x, numbers_);
  numbers_ = {};
}

void EncodedReduction::undo(std::int64_t step) const {
  for (std::size_t i = 0; now_ && now_->step == step && i < before_.size(); ++i)
    if (before_[i]) now_->states[i].copy_from(before_[i]);
}

}  // namespace trireme
