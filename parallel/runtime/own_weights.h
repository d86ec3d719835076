// OwnWeights: the weights and running statistics of a rank that trains for itself, while all ranks have those of
// servers, or the mean of all workers', for evaluation.
#pragma once
#include <vector>

#include "framework/optim/optimizer.h"
#include "parallel/plan/plan.h"

namespace trireme {

class OwnWeights {
 public:
  /// program: this rank's. All that is referred to must outlive it.
  OwnWeights(const Plan&, int program, Optimizer&);
  bool served() const { return served_; }  ///< whether the plan has servers
  /// Whether workers have weights of their own between steps.
  bool differ() const { return differ_; }
  /// Before others come to all ranks: this rank's are kept.
  void put_aside();
  /// This rank has its own weights and statistics again.
  void restore();
  /// This rank's own, kept or in use: the weights of a slice on one device, and the buffer at an index.
  Tensor weights(const Slice&) const;
  Tensor buffer(std::size_t index) const;

 private:
  ParameterStore& store() const { return optimizer_.parameters(); }

  Optimizer& optimizer_;
  bool served_, serves_, differ_;
  std::vector<Slice> slices_;              // of weights that others come in the place of, each on one device
  std::vector<Tensor> weights_, buffers_;  // kept: by slices_, by index; empty: nothing is
};

}  // namespace trireme
