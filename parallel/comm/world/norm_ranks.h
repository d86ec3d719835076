// NormRanks of a communicator: the ranks that share the statistics of a synchronized batch norm.
#pragma once
#include <vector>

#include "framework/autograd/norm_ranks.h"
#include "kernels/core/named_range.h"
#include "parallel/comm/communicator.h"

namespace trireme {

/// The NamedRange in which statistics are sent.
inline constexpr const char* norm_statistics = "batch norm statistics";

/// A function that waits for work; call it once.
inline NormRanks::Wait waiting_for(Work work) {
  return [work = std::move(work)]() mutable { work.wait(); };
}

/// The ranks of one communicator, or of a box with a communicator along each axis. outer, if given: further ranks, of
/// which each belongs to such a box.
class CommunicatorNormRanks final : public NormRanks {
 public:
  /// owner: keeps the communicators alive; null: the caller does.
  explicit CommunicatorNormRanks(std::vector<Communicator*> axes, std::shared_ptr<const NormRanks> outer = {},
                                 std::shared_ptr<const void> owner = {})
      : axes_(std::move(axes)), outer_(std::move(outer)), owner_(std::move(owner)) {}
  int size() const override {
    int all = outer_ ? outer_->size() : 1;
    for (const Communicator* axis : axes_) all *= axis->size();
    return all;
  }
  Wait gather(const Tensor& to, const Tensor& from) const override {
    const NamedRange range(norm_statistics);
    Tensor block = from;
    for (std::size_t i = 0; i < axes_.size(); ++i) {
      const bool last = !outer_ && i + 1 == axes_.size();
      const Tensor next = last ? to : Tensor::empty({axes_[i]->size() * block.numel()}, to.dtype(), to.device());
      Work work = axes_[i]->all_gather(next, block);
      if (last) return waiting_for(std::move(work));
      work.wait();
      block = next;
    }
    return outer_->gather(to, block);
  }
  Wait sum(const Tensor& x) const override {
    const NamedRange range(norm_statistics);
    for (std::size_t i = 0; i < axes_.size(); ++i) {
      Work work = axes_[i]->all_reduce(x);
      if (!outer_ && i + 1 == axes_.size()) return waiting_for(std::move(work));
      work.wait();
    }
    return outer_->sum(x);
  }

 private:
  std::vector<Communicator*> axes_;
  std::shared_ptr<const NormRanks> outer_;
  std::shared_ptr<const void> owner_;
};

}  // namespace trireme
