// BatchNormStats: batch norm's statistics over a mini-batch of several micro-batches. Each micro-batch is normalised by
// its own mean and variance. The running statistics are updated once, by the statistics of all rows.
#pragma once
#include <vector>

#include "framework/tensor/tensor.h"

namespace trireme {

/// The statistics of a step's micro-batches, for all batch norms of a model.
class BatchNormStats {
 public:
  /// Adds the statistics of a micro-batch for one batch norm, by the pairwise merge of Chan, Golub & LeVeque 1983, in
  /// f64.
  /// - running_mean, running_var [C]: the batch norm's running statistics, which also identify it.
  /// - mean [C], m2 [C]: mean, and sum of squared deviations from it, over `count` > 0 elements of each channel.
  /// - momentum: share of the new statistics in the running ones, as in PyTorch.
  void add(const Tensor& running_mean, const Tensor& running_var, const Tensor& mean, const Tensor& m2, double count,
           double momentum);
  /// Updates the running statistics as one batch norm over all micro-batches would, and drops the added statistics.
  void commit();
  /// Drops the added statistics; running statistics do not change.
  void clear() { layers_.clear(); }

 private:
  struct Layer {
    Tensor running_mean, running_var, mean, m2;
    double count = 0, momentum = 0;
  };
  std::vector<Layer> layers_;  // in the order of their first micro-batch
};

}  // namespace trireme
