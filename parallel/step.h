// Step: one optimizer step of a model under a strategy. It builds the plan, checks it, compares it across
// ranks, broadcasts the initial state from rank 0, and then interprets its role's actions on each call.
#pragma once
#include <memory>
#include <optional>

#include "framework/ops.h"
#include "framework/optimizer.h"
#include "parallel/mesh.h"
#include "parallel/strategy.h"

namespace trireme {

struct StepOptions {
  std::uint64_t seed = 0;  ///< of dropout masks
  OptimizerOptions optimizer = {};
  /// A loss that is not finite (or a gradient, looked at every 64th step) throws Error naming the step and
  /// the first input, parameter or layer output that is not; parameters are left as they were.
  bool check_finite = true;
};

class Step {
 public:
  /// model is shared, not copied. Without a strategy: serial on one rank, data_parallel on several. A
  /// collective call. Throws Error when the plan is unsound, when ranks disagree about it (and names them),
  /// or when a mesh axis has no use.
  Step(Module model, Loss loss, Recipe recipe, World& world, std::optional<Strategy> strategy = {}, StepOptions = {});
  Step(Module model, Loss loss, Recipe recipe, Mesh& mesh, std::optional<Strategy> strategy = {}, StepOptions = {});
  ~Step();
  Step(const Step&) = delete;

  /// x, y: this rank's rows of the global batch (none is allowed); Pass::current() (set by the Loader's
  /// iterator) names their ids and the global batch. Where it names none, the rows of all ranks together are
  /// the batch, numbered by rank; that costs a message. Returns the loss of the global batch, a scalar;
  /// reading it synchronises. A collective call.
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
/// With overlap = false any number of backwards may come before finish(). Buffers are left to the caller.
class Reducer {
 public:
  /// parameters and world must outlive it.
  Reducer(Parameters& parameters, World& world, DataParallelOptions = {});
  ~Reducer();
  Reducer(const Reducer&) = delete;
  void finish();  ///< waits for all buckets; gradients that this rank did not produce count as zero

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};
/// Copies rank 0's parameters and buffers (or optimizer state and step count) to all. Collective calls.
void broadcast_state(Parameters&, World&);
void broadcast_state(Optimizer&, World&);

}  // namespace trireme
