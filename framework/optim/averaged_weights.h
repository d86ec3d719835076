// AveragedWeights: a running mean of a model's weights (torch.optim.swa_utils.AveragedModel; Polyak's averaging).
#pragma once
#include <cstdint>
#include <optional>

#include "framework/optim/parameters.h"

namespace trireme {

class AveragedWeights {
 public:
  /// Of the weights at hand. decay in [0, 1): an exponential moving average, average = decay average + (1 - decay)
  /// weights; none: the mean of all weights that update() has seen (SWA, arXiv 1803.05407). weights must outlive it.
  explicit AveragedWeights(ParameterStore& weights, std::optional<double> decay = {});
  /// To be called after a step; the first call copies. Throws Error for weights on other ranks: consolidate() the Step.
  void update();
  std::int64_t updates() const { return updates_; }
  /// From now on the model computes with the average; train() goes back. No numbers are copied.
  void evaluate() { average_.bind(); }
  void train() { weights_.bind(); }
  ParameterStore& store() { return average_; }  ///< the average; its entries have the model's names

 private:
  ParameterStore& weights_;
  ParameterStore average_;
  std::optional<double> decay_;
  std::int64_t updates_ = 0;
};

}  // namespace trireme
