// Agreement: the numbers of a step that its `agree` actions combine over ranks: loss, gradient norm, trust ratios,
// flags. Also checks whether loss and gradients are finite, and updates the loss scale.
#pragma once
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "framework/optim/optimizer.h"
#include "framework/tensor/host_copy.h"
#include "parallel/comm/communicator.h"
#include "parallel/plan/plan.h"
#include "parallel/runtime/loss_scale.h"
#include "parallel/runtime/step.h"

namespace trireme {

/// The agreed numbers of one step on one rank.
class Agreement {
 public:
  /// updated: the slices of the flat block that this rank updates, for its share of the gradient norm. All references
  /// must outlive it.
  Agreement(Optimizer&, const Program&, const std::vector<Slice>& updated, const StepOptions&);

  /// Starts a step: drops the numbers of the previous step.
  void begin();
  /// Sets this rank's share of the loss, a scalar. is_final: no other rank has a share, so the loss can be read at
  /// once.
  void set_loss(const Tensor& share, bool is_final);
  /// This rank's share of the loss; after the action that sums it, the sum over ranks.
  Tensor& loss() { return loss_; }
  /// Sets the number of this rank's labels that the loss ignores.
  void set_ignored(double count) { count_ = Tensor::full({1}, count, DType::f64); }
  /// The number of ignored labels of all ranks, after the action that sums it; none: the plan does not count them.
  std::optional<double> ignored() const { return count_ ? std::optional(count_.item()) : std::nullopt; }
  /// Raises one of the plan's flags on this rank. It stays raised until the next exchange of flags.
  void raise(const std::string& flag) { raised_.insert(flag); }
  /// Whether this step's exchange of flags found the flag raised on any rank.
  bool told(const std::string& flag) const { return told_.contains(flag); }
  /// Starts an action of kind `agree` with the ranks of its axis. communicator: null if this rank is alone there.
  Work start(const Action&, Communicator* communicator);
  /// As above, for an action on trust ratios of a step that updates. updated: all slices that this rank updates.
  /// copies: the tied weights among them that another program counts.
  Work start_ratios(const std::vector<Slice>& updated, const std::vector<Slice>& copies, double grad_scale,
                    Communicator*);
  /// Stores the result of that action.
  void finish(const Action&);

  /// Describes the number that is not finite: the loss or the gradients. Empty: all are finite, or the step does not
  /// check.
  std::string fault();
  /// Whether the gradients may be used: false after an overflow with loss scaling, which also reduces the scale. Call
  /// once per step.
  bool accepts_gradients() { return !scale.on() || scale.see(finite_); }
  /// The factor by which clipping multiplies the gradients. Throws Error if the norm is not finite.
  double clip_scale();
  /// Norm of this step's gradients, without loss scale and before clipping; NaN: it was not computed.
  double norm() const { return norm_; }
  /// Moves out the loss of the global batch, a scalar; call once per step.
  Tensor take_loss() { return std::exchange(loss_, {}); }

  LossScale scale;  ///< loss scaling of the run

 private:
  /// Computes norm_ over all ranks, once per step. The planned traffic counts this call.
  void find_norm();

  Optimizer& optimizer_;
  const std::vector<Slice>& updated_;
  AxisMask shards_ = 0;  // axes that divide weights and over which an action sums the squares of gradients
  bool check_finite_;
  double norm_ = NAN;
  bool has_norm_ =
      false;  // norm_ is the norm over all ranks; a check for finite numbers computes this rank's norm only
  // count: f64 [1]. flags: i64 [names of their action]. square: squared gradient norm, f64 [1]. Undefined: this step's
  // actions do not combine it. ratios: of Optimizer::start_update().
  Tensor count_, loss_, flags_, square_, ratios_;
  std::set<std::string> raised_, told_;  // told: flags that some rank raised
  bool finite_ = true;                   // gradients and weights are finite on all ranks
  HostCopy read_;                        // copies a loss from its device while backward runs
  /// The ranks that sum this loss on the host after the copy. A collective of the device would run after backward, so
  /// that the loss could not be read earlier. Null: no sum, or it is done.
  Communicator* summed_over_ = nullptr;
};

}  // namespace trireme
