// AveragedWeights: a running average of a model's weights (torch.optim.swa_utils.AveragedModel; Polyak averaging).
#pragma once
#include <cstdint>
#include <optional>

#include "framework/optim/parameters.h"

namespace trireme {

class AveragedWeights {
 public:
  /// decay in [0, 1): exponential moving average, average = decay average + (1 - decay) weights. Without decay: the
  /// mean of all weights at the calls of update() (SWA, Izmailov et al., arXiv 1803.05407). weights must outlive this
  /// object.
  explicit AveragedWeights(ParameterStore& weights, std::optional<double> decay = {});
  /// Call it after a step; the first call copies. Throws Error for weights on other ranks: call Step::gather_weights()
  /// first.
  void update();
  std::int64_t updates() const { return updates_; }  ///< number of calls of update()
  /// Makes the model compute with the average; train() switches back. Copies no numbers.
  void evaluate() { average_.bind(); }
  void train() { weights_.bind(); }             ///< makes the model compute with its own weights again
  ParameterStore& store() { return average_; }  ///< the average; its entries have the model's names

 private:
  ParameterStore& weights_;
  ParameterStore average_;
  std::optional<double> decay_;
  std::int64_t updates_ = 0;
};

}  // namespace trireme
