// OutputKeeper: keeps the predictions and targets of a step, per micro-batch.
#pragma once
#include <utility>
#include <vector>

#include "framework/ops/ops.h"
#include "framework/tensor/fields.h"
#include "parallel/runtime/step.h"

namespace trireme {

/// The kept outputs of one rank: see StepOptions::keep_outputs.
class OutputKeeper {
 public:
  /// keep: StepOptions::keep_outputs. microbatches: number of micro-batches per step.
  OutputKeeper(StepOptions::KeepOutputs keep, int microbatches) : keep_(std::move(keep)), most_(microbatches) {}
  /// The loss, which from now on also calls `keep` on its arguments; unchanged if `keep` is null. This object must
  /// outlive the result.
  Loss watching(Loss loss) {
    if (!keep_) return loss;
    auto ignored = loss.ignored();
    return Loss(
        [this, loss = std::move(loss)](const Tensor& prediction, const Tensor& target) {
          {
            const NoGrad off;
            kept_.emplace_back(keep_(prediction, target), target ? target.detach() : target);
          }
          return loss(prediction, target);
        },
        std::move(ignored));
  }
  /// Call before a step. may_replay: the step may be a graph replay, which overwrites the outputs of the captured step.
  void begin(bool may_replay) {
    before_ = may_replay ? std::exchange(kept_, {}) : std::vector<Pair>{};
    kept_.clear();
  }
  /// Call after a step. replayed: whether it was a graph replay.
  void end(bool replayed) {
    if (replayed && kept_.empty()) kept_ = std::move(before_);
    before_.clear();
    // If there is more than one output per micro-batch, the first ones are from a failed capture.
    if (std::ssize(kept_) > most_) kept_.erase(kept_.begin(), kept_.end() - most_);
  }
  /// The kept outputs of all micro-batches, joined along rows; undefined: none.
  Tensor outputs() const { return joined(&Pair::first); }
  /// The targets of these rows.
  Tensor targets() const { return joined(&Pair::second); }

 private:
  using Pair = std::pair<Tensor, Tensor>;
  Tensor joined(Tensor Pair::*which) const {
    if (kept_.empty() || kept_.size() == 1 || !(kept_[0].*which)) return kept_.empty() ? Tensor() : kept_[0].*which;
    const NoGrad off;
    std::vector<Tensor> parts;
    for (const Pair& p : kept_) parts.push_back(p.*which);
    return join_fields(parts, [](const std::vector<Tensor>& some) { return concat(some, 0); });
  }

  StepOptions::KeepOutputs keep_;
  std::ptrdiff_t most_;
  std::vector<Pair> kept_, before_;  // before_: of the previous step, while one runs
};

}  // namespace trireme
