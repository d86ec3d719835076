// StepGraph: forward and backward of a step, captured once and replayed as CUDA graphs, so that the host does not start
// each kernel. The capture is cut into several graphs. Between two graphs the host starts collectives (gradient sums,
// batch norm's statistics), and between forward and backward it can read the loss. Collectives are not captured: they
// start in the same order as on ranks without replay.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/autograd/step_context.h"
#include "framework/optim/parameters.h"
#include "framework/tensor/tensor.h"
#include "kernels/core/runtime.h"
#include "parallel/runtime/executor.h"

namespace trireme {

/// The captured passes of one rank's step.
class StepGraph final : public CapturedPasses {
 public:
  /// Whether steps of the plan can be captured: all parts are on one device, there is one program, and its passes have
  /// no actions between them except gradient sums.
  static bool serves(const Plan& plan);

  /// device: holds the whole model. parameters must outlive the graph.
  StepGraph(Device device, Parameters& parameters) : device_(device), parameters_(parameters) {}

  /// Prepares a replay: copies inputs x and targets y to the tensors that the graph reads. Steps are of one kind if
  /// they have the same shapes, dtypes, global batch and loss scale. The second step of a kind captures the executor's
  /// passes. False: run the step without a graph, because its kind is new (the old graph and its memory are dropped) or
  /// because it cannot be captured; nothing has been started then.
  bool ready(Executor& executor, const Tensor& x, const Tensor& y, const StepContext& context, double loss_scale);
  const std::string& refusal() const { return refusal_; }  ///< why steps cannot be captured; empty: no reason so far
  /// The context, whose step number and sample ids are read from tensors of the graph, so that a replay has new ones.
  StepContext captured_context(StepContext context) const;
  const Tensor& x() const { return x_; }  ///< the tensor from which the graph reads inputs
  const Tensor& y() const { return y_; }  ///< the tensor from which the graph reads targets

  void forward() override;
  const Tensor& loss() const override { return loss_; }
  /// Marks the gradients as written.
  void backward(const Buckets::Complete& complete) override;

  /// Drops the captured graph and its memory.
  void drop();

 private:
  struct Kind {
    Shape x, y;
    DType x_type, y_type;
    Index global_batch;
    double loss_scale;
    bool operator==(const Kind&) const = default;
  };
  void load(const Tensor& x, const Tensor& y, const StepContext& context);
  bool capture(Executor& executor, const StepContext& context);
  void cut(std::function<void(const Buckets::Complete&)> between);

  Device device_;
  Parameters& parameters_;
  std::unique_ptr<DeviceGraph> graph_;  // null: not captured
  std::optional<Kind> last_;
  std::string refusal_;
  Tensor x_, y_, numbers_, loss_;  // numbers: i64 [1 + rows]: the step's number, then the samples' ids
  std::vector<bool> written_;      // per entry: backward writes a gradient
  /// Started between one part and the next: a layer's collective, or everything that complete() starts.
  std::vector<std::function<void(const Buckets::Complete&)>> between_;
  std::size_t forward_parts_ = 0;
};

}  // namespace trireme
