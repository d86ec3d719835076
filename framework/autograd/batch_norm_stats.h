// BatchNormStats: batch norm's statistics over a mini-batch of several micro-batches. Each micro-batch is normalised by
// its own mean and variance. The running statistics are updated once, by the statistics of all rows.
#pragma once
#include <vector>

#include "framework/tensor/tensor.h"

namespace trireme {

class BatchNormStats {
 public:
  /// Merges a micro-batch's statistics into the sums for the batch norm with these running statistics [C]: mean [C], m2
  /// [C] (sum of squared deviations from mean) and count > 0 rows. Pairwise merge of Chan, Golub & LeVeque 1983, in
  /// f64.
  void add(const Tensor& running_mean, const Tensor& running_var, const Tensor& mean, const Tensor& m2, double count,
           double momentum);
  /// Updates the running statistics as one batch norm over all rows would, and clears the merged ones.
  void commit();
  /// Clears the merged statistics without updating the running ones.
  void clear() { layers_.clear(); }

 private:
  struct Layer {
    Tensor running_mean, running_var, mean, m2;
    double count = 0, momentum = 0;
  };
  std::vector<Layer> layers_;  // in the order of their first micro-batch
};

}  // namespace trireme
