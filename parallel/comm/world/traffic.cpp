#include "parallel/comm/world/traffic.h"

#include "kernels/core/runtime.h"
#include "parallel/comm/call.h"

namespace trireme {

Index payload_bytes(const Call& call) {
  return call.kind == CallKind::recv ? 0 : call.count * static_cast<Index>(size_of(call.type));
}

Traffic difference(const Traffic& b, const Traffic& a) {
  Traffic more;
  for (auto& [axis, count] : b) {
    const auto before = a.find(axis);
    const TrafficCount was = before == a.end() ? TrafficCount{} : before->second;
    if (count.calls > was.calls) more[axis] = {count.calls - was.calls, count.bytes - was.bytes};
  }
  return more;
}

class TrafficMeter::Metered final : public CommunicatorWrapper {
 public:
  Metered(std::unique_ptr<Communicator> inner, const TrafficMeter& meter, const std::string& axis)
      : CommunicatorWrapper(std::move(inner)), meter_(meter), axis_(axis), count_(meter.state_->counted[axis]) {}
  Work start(const Call& call, const Tensor& out, const Tensor& in, std::span<const Index> counts) override {
    if (meter_.state_->dry) [[unlikely]]
      return skip(call, out, in, counts);
    if (!meter_.state_->paused && call.kind != CallKind::recv) count_ += {1, payload_bytes(call)};
    return inner_->start(call, out, in, counts);
  }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return meter_.metered(inner_->split(color, key), axis_);
  }

 private:
  Work skip(const Call& call, const Tensor& out, const Tensor& in, std::span<const Index> counts) const {
    (*meter_.state_->dry)(axis_, call);
    if (call.kind != CallKind::all_gather || call.count == 0) return {};
    const auto offsets = block_offsets(call, counts, size());
    const Tensor all = out.detach().reshape({out.numel()}), own = in.detach().reshape({in.numel()}).clone();
    for (std::size_t r = 0; r + 1 < offsets.size(); ++r) {
      const Index n = std::min(own.numel(), offsets[r + 1] - offsets[r]);
      if (n > 0) copy_block(all.view_rows(offsets[r], offsets[r] + n), own.view_rows(0, n));
    }
    return {};
  }

  TrafficMeter meter_;
  std::string axis_;
  TrafficCount& count_;
};

std::unique_ptr<Communicator> TrafficMeter::metered(std::unique_ptr<Communicator> inner,
                                                    const std::string& axis) const {
  return std::make_unique<Metered>(std::move(inner), *this, axis);
}

namespace {

class Imagined final : public Communicator {
 public:
  Imagined(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string transport() const override { return "imagined"; }
  Work start(const Call& call, const Tensor&, const Tensor&, std::span<const Index>) override {
    fail(name_of(call.kind), "rank {} of {} is imagined, so it cannot communicate; use a dry meter", rank_, size_);
  }
  int probe(int, int) override { return -1; }
  std::unique_ptr<Communicator> split(int, int) override { return imagined_communicator(rank_, size_); }
  void abort(const AbortReason& reason) override { ended_ = reason; }
  AbortReason ended() const override { return ended_; }

 private:
  int rank_, size_;
  AbortReason ended_;
};

}  // namespace

std::unique_ptr<Communicator> imagined_communicator(int rank, int size) {
  return std::make_unique<Imagined>(rank, size);
}

}  // namespace trireme
