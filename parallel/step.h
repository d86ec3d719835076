// Step: one optimizer step of a model under a strategy. It builds the plan, checks it, compares it across ranks, broadcasts the initial
// state from rank 0, and then interprets its role's actions on each call.
#pragma once
#include <memory>

#include "framework/ops.h"
#include "framework/optimizer.h"
#include "parallel/mesh.h"
#include "parallel/strategy.h"

namespace trireme {

struct StepOptions {
  std::uint64_t seed = 0;                ///< of dropout masks
  OptimizerOptions optimizer = {};
  bool check_finite = true;              ///< a non-finite loss throws Error naming the first layer whose output or gradient is not finite
};

class Step {
 public:
  /// model is shared, not copied. Without a strategy: serial on one rank, data_parallel on several.
  Step(Module model, Loss loss, Recipe recipe, World& world, Strategy strategy, StepOptions = {});
  Step(Module model, Loss loss, Recipe recipe, Mesh& mesh, Strategy strategy, StepOptions = {});
  ~Step();
  Step(const Step&) = delete;

  /// x, y: this rank's rows of the global batch (none is allowed); Pass::current() (set by the Loader's iterator) names their ids and the
  /// global batch. Returns the loss of the global batch, a scalar; reading it synchronises.
  Tensor operator()(const Tensor& x, const Tensor& y);

  Parameters& parameters();
  Optimizer& optimizer();
  const Plan& plan() const;
  Module& model();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// For hand-written loops: reduces gradients bucket by bucket while backward goes on.
///   Reducer reducer(parameters, world); ... loss.backward(); reducer.finish(); optimizer.step();
class Reducer {
 public:
  Reducer(Parameters&, World&, DataParallelOptions = {});
  ~Reducer();
  void finish();   ///< waits for all buckets; gradients that this rank did not produce count as zero

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};
/// Copies rank 0's parameters and buffers (and optimizer state) to all.
void broadcast_state(Parameters&, World&);
void broadcast_state(Optimizer&, World&);

}  // namespace trireme
