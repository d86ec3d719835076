// BatchNormStats: batch norm's statistics over a mini-batch that comes in several micro-batches. Each micro-batch is
// normalised by its own mean and variance; the running statistics move once, by those of all rows together.
#pragma once
#include <vector>

#include "framework/tensor/tensor.h"

namespace trireme {

class BatchNormStats {
 public:
  /// Merges a micro-batch's statistics (mean [C], m2 [C]: squared deviations from it, summed; count > 0 rows) into
  /// those of the batch norm that owns the running statistics [C]. Pairwise merge of Chan, Golub & LeVeque 1983, in
  /// f64.
  void add(const Tensor& running_mean, const Tensor& running_var, const Tensor& mean, const Tensor& m2, double count,
           double momentum);
  /// Moves the running statistics as one batch norm over all rows would, and forgets what was merged.
  void commit();
  /// Forgets the merged statistics; the running ones stay.
  void clear() { layers_.clear(); }

 private:
  struct Layer {
    Tensor running_mean, running_var, mean, m2;
    double count = 0, momentum = 0;
  };
  std::vector<Layer> layers_;  // in the order met
};

}  // namespace trireme
