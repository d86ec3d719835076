// OutputKeeper: what a step keeps of its predictions, micro-batch by micro-batch, beside their targets.
#pragma once
#include <utility>
#include <vector>

#include "framework/ops/ops.h"
#include "framework/tensor/fields.h"
#include "parallel/runtime/step.h"

namespace trireme {

class OutputKeeper {
 public:
  /// microbatches: of a step.
  OutputKeeper(StepOptions::KeepOutputs keep, int microbatches) : keep_(std::move(keep)), most_(microbatches) {}
  /// The loss, which also keeps; itself where nothing is kept. This must outlive it.
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
  /// may_replay: the step may be a replayed one, which writes the outputs of the captured one anew.
  void begin(bool may_replay) {
    before_ = may_replay ? std::exchange(kept_, {}) : std::vector<Pair>{};
    kept_.clear();
  }
  void end(bool replayed) {
    if (replayed && kept_.empty()) kept_ = std::move(before_);
    before_.clear();
    // The first of more than one per micro-batch is of a step that could not be captured.
    if (std::ssize(kept_) > most_) kept_.erase(kept_.begin(), kept_.end() - most_);
  }
  Tensor outputs() const { return joined(&Pair::first); }
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
  std::vector<Pair> kept_, before_;  // before_: of the step before, while one runs
};

}  // namespace trireme
