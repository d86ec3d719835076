// LossReducer: the loss of the global batch on every rank, and the verdict on a step's numbers: whether loss and
// gradients are finite, and what loss scaling makes of it.
#pragma once
#include <string>
#include <vector>

#include "framework/optim/optimizer.h"
#include "framework/tensor/host_copy.h"
#include "parallel/runtime/loss_scale.h"
#include "parallel/runtime/step_ranks.h"

namespace trireme {

class LossReducer {
 public:
  /// last_stage: the role that computes the loss. updated: the slices of the flat block that this rank updates.
  /// everyone: all ranks. All that is referred to must outlive it.
  LossReducer(const StepRanks&, int last_stage, Communicator& everyone, Optimizer&, const std::vector<Slice>& updated,
              double loss_scale, bool check_finite);

  /// Starts to sum this rank's share of the loss (a scalar), which goes on while backward runs.
  void start(const Tensor& share);
  /// Ends the sum and brings the loss to all pipeline stages. Returns what is not finite, in words; empty: nothing is,
  /// or it is not looked for. Gradients are looked at in every 64th step. A collective call, once per step, before the
  /// first update.
  std::string finish();
  /// Whether the gradients may be used: false after an overflow under loss scaling, which then changes its scale. A
  /// collective call where scaling is on.
  bool accepts_gradients() { return !scale.on() || scale.see(gradients_finite()); }
  /// The loss of the global batch, a scalar; once per step.
  Tensor take() { return std::exchange(loss_, {}); }

  LossScale scale;

 private:
  bool gradients_finite();

  const StepRanks& ranks_;
  int last_stage_;
  Communicator& everyone_;
  Optimizer& optimizer_;
  const std::vector<Slice>& updated_;
  bool check_finite_;
  Tensor loss_;
  HostCopy read_;  // of a loss that is not summed: on its way while backward runs
  Work sum_;
};

}  // namespace trireme
