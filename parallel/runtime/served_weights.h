// ServedWeights: what servers and the first worker have, on all ranks, for evaluation; and each worker's own behind it.
#pragma once
#include <vector>

#include "framework/optim/optimizer.h"
#include "parallel/comm/world/mesh.h"
#include "parallel/plan/plan.h"

namespace trireme {

class ServedWeights {
 public:
  /// program: this rank's. All that is referred to must outlive it.
  ServedWeights(const Plan&, int program, Mesh&, Optimizer&);
  bool any() const { return !servers_.empty(); }  ///< whether the plan has servers
  /// Whether workers have weights of their own between steps.
  bool differ() const { return differ_; }
  /// Weights and optimizer state of the servers, and the running statistics of the first worker, come to all ranks,
  /// which hold the optimizer's state of all. A collective call; does nothing where there are no servers.
  void gather();
  /// This rank has its own weights and statistics again.
  void restore();

 private:
  struct Own {
    Tensor in_use, copy;
  };
  void put_aside(const Tensor& t) { own_.push_back({t, t.clone()}); }

  const Plan& plan_;
  Mesh& mesh_;
  Optimizer& optimizer_;
  const Program& program_;
  std::vector<const Program*> servers_;
  bool differ_ = false;
  std::vector<Own> own_;
};

}  // namespace trireme
