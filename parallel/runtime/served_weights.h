// ServedWeights: each worker's own weights and statistics, while all ranks have those of servers for evaluation.
#pragma once
#include <vector>

#include "framework/optim/optimizer.h"
#include "parallel/plan/plan.h"

namespace trireme {

class ServedWeights {
 public:
  /// program: this rank's. All that is referred to must outlive it.
  ServedWeights(const Plan&, int program, Optimizer&);
  bool any() const { return any_; }  ///< whether the plan has servers
  /// Whether workers have weights of their own between steps.
  bool differ() const { return differ_; }
  /// Before the servers' weights and the first worker's running statistics come to all ranks: this rank's are kept.
  void put_aside();
  /// This rank has its own weights and statistics again.
  void restore();

 private:
  struct Own {
    Tensor in_use, copy;
  };

  Optimizer& optimizer_;
  const Program& program_;
  bool any_, differ_;
  std::vector<Own> own_;
};

}  // namespace trireme
