// OwnWeights: stores the weights and running statistics of a worker that trains separately, while the model has common
// ones for an evaluation: the servers' weights, or the mean of all workers' weights.
#pragma once
#include <vector>

#include "framework/optim/optimizer.h"
#include "parallel/plan/plan.h"

namespace trireme {

/// The separate weights of one rank.
class OwnWeights {
 public:
  /// program: index of this rank's program. All references must outlive it.
  OwnWeights(const Plan&, int program, Optimizer&);
  bool served() const { return served_; }  ///< whether the plan has servers
  /// Whether workers may have different weights between steps.
  bool differ() const { return differ_; }
  /// Saves this rank's weights; call before all ranks get common ones.
  void put_aside();
  /// Restores this rank's saved weights and statistics.
  void restore();
  /// This rank's separate weights in a slice on one device, saved or in use.
  Tensor weights(const Slice&) const;
  /// This rank's separate running statistics in the buffer at an index, saved or in use.
  Tensor buffer(std::size_t index) const;

 private:
  ParameterStore& store() const { return optimizer_.parameters(); }

  Optimizer& optimizer_;
  bool served_, serves_, differ_;
  std::vector<Slice> slices_;              // of weights that common ones replace; each is on one device
  std::vector<Tensor> weights_, buffers_;  // saved weights by slices_, saved buffers by index; empty: nothing is saved
};

}  // namespace trireme
