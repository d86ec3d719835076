// StepGraph: forward and backward of a step, captured once and then given to the device as a whole (CUDA graphs), which
// spares the host to start each kernel. In parts: the loss can be read while backward runs, and between parts what
// ranks do together starts: collectives of layers (batch norm's statistics), and those that sum gradients. These are
// not captured, so that they start in the order in which they do on ranks whose steps are not replayed.
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

class StepGraph final : public CapturedPasses {
 public:
  /// Whether forward and backward of the plan's one program run on one device, with nothing of the plan's between them
  /// but what sums gradients.
  static bool serves(const Plan& plan);

  /// device: where the whole model lies. parameters must outlive the graph.
  StepGraph(Device device, Parameters& parameters) : device_(device), parameters_(parameters) {}

  /// Makes a step on these inputs ready for replay(): copies them to where the graph reads them and, where the step
  /// before was the first of its kind, captures the executor's. False: its kernels are to be started one by one, for it
  /// is of another kind than the one before (the captured graph is dropped, with its memory), or cannot be captured;
  /// nothing has been started then.
  bool ready(Executor& executor, const Tensor& x, const Tensor& y, const StepContext& pass, double loss_scale);
  const std::string& refusal() const { return refusal_; }  ///< why steps cannot be captured; empty: they can, so far
  /// The context as the graph's kernels see it.
  StepContext captured_context(StepContext pass) const;
  const Tensor& x() const { return x_; }

  const Tensor& y() const { return y_; }

  void forward() override;
  const Tensor& loss() const override { return loss_; }
  /// Gradients count as written.
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
  void load(const Tensor& x, const Tensor& y, const StepContext& pass);
  bool capture(Executor& executor, const StepContext& pass);
  void cut(std::function<void(const Buckets::Complete&)> between);

  Device device_;
  Parameters& parameters_;
  std::unique_ptr<DeviceGraph> graph_;  // null: nothing is captured
  std::optional<Kind> last_;
  std::string refusal_;
  Tensor x_, y_, numbers_, loss_;  // numbers: i64 [1 + rows], the step's and the samples'
  std::vector<bool> written_;      // per entry: backward leaves a gradient
  /// What starts between one part and the next: a call of a layer's, or all that complete() starts.
  std::vector<std::function<void(const Buckets::Complete&)>> between_;
  std::size_t forward_parts_ = 0;
};

}  // namespace trireme
