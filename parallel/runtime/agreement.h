// Agreement: the numbers that a step's actions `agree` make equal on all ranks, and the verdict on them: whether loss
// and gradients are finite, and what loss scaling makes of it.
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

class Agreement {
 public:
  /// updated: the slices of the flat block that this rank updates. All that is referred to must outlive it.
  Agreement(Optimizer&, const std::vector<Slice>& updated, const StepOptions&);

  /// Forgets the numbers of the step before.
  void begin();
  /// This rank's share of the loss, a scalar. is_final: nobody else has a share, so that it can be read at once.
  void set_loss(const Tensor& share, bool is_final);
  /// As it is known by now.
  const Tensor& loss() const { return loss_; }
  /// This rank's labels that count for nothing.
  void set_ignored(double count) { count_ = Tensor::full({1}, count, DType::f64); }
  /// Those of all ranks, once agreed on; none: the plan does not count them.
  std::optional<double> ignored() const { return count_ ? std::optional(count_.item()) : std::nullopt; }
  /// Raises one of the plan's flags on this rank, until it is told.
  void raise(const std::string& flag) { raised_.insert(flag); }
  /// Whether this step has told all ranks that one of them raised it.
  bool told(const std::string& flag) const { return told_.contains(flag); }
  /// Starts an action of kind `agree` with the ranks of its axis; null: this rank is alone there.
  Work start(const Action&, Communicator*);
  /// Takes over its result.
  void finish(const Action&);

  /// What is not finite, in words; empty: nothing is, or it is not looked for.
  std::string fault();
  /// Whether the gradients may be used: false after an overflow under loss scaling, which then changes its scale. Once
  /// per step.
  bool accepts_gradients() { return !scale.on() || scale.see(finite()); }
  /// The factor of the gradients that clipping asks for. Throws Error for a norm that is not finite.
  double clip_scale();
  /// Of this step's gradients, unscaled and before clipping; NaN: nobody had to know it.
  double norm() const { return norm_; }
  /// The loss of the global batch, a scalar; once per step.
  Tensor take_loss() { return std::exchange(loss_, {}); }

  LossScale scale;

 private:
  bool finite() const { return !told_.contains("finite"); }
  /// norm_ of all ranks' gradients, where this step has not found it yet.
  void find_norm();

  Optimizer& optimizer_;
  const std::vector<Slice>& updated_;
  bool check_finite_;
  double norm_ = NAN;
  // count: f64 [1]; flags: i64, by the names of their action; square: of the gradient's norm, f64 [1]; empty: not put
  // together
  Tensor count_, loss_, flags_, square_;
  std::set<std::string> raised_, told_;  // told: flags that came to 0, "finite" among them where it is not
  HostCopy read_;                        // of a loss on a device, on its way while backward runs
  /// Ranks with which that loss is summed on the host once it has come: among the device's own calls it would be read
  /// behind backward. Null: it is not, or has been.
  Communicator* summed_over_ = nullptr;
};

}  // namespace trireme
