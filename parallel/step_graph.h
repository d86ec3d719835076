// StepGraph: forward and backward of a step, noted once and then given to the device as a whole (CUDA graphs), which
// spares the host to start each kernel. In two parts, so that the loss can be read while backward runs.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/parameters.h"
#include "framework/pass.h"
#include "framework/tensor.h"
#include "kernels/runtime.h"

namespace trireme {

class StepGraph {
 public:
  enum class Way { start, note, replay };

  /// device: where the whole model lies. parameters must outlive the graph.
  StepGraph(Device device, Parameters& parameters) : device_(device), parameters_(parameters) {}

  /// How to do a step on such inputs: start its kernels, note it (the step before was like it), or replay it. A step of
  /// another kind gives up what was noted, and the memory with it.
  Way way(const Tensor& x, const Tensor& y, const Pass& pass, double loss_scale);

  /// Copies of a step's inputs where the graph reads them, and the pass for its kernels.
  void load(const Tensor& x, const Tensor& y, const Pass& pass);
  const Tensor& x() const { return x_; }
  const Tensor& y() const { return y_; }
  Pass noted_pass(Pass pass) const;

  // Noting: begin_forward(), forward, begin_backward(loss), backward, end(). Work that cannot be noted throws Error;
  // nothing has been started then, and after refuse() steps are started kernel by kernel.
  void begin_forward();
  void begin_backward(const Tensor& loss);
  void end();
  void refuse(const std::string& why);
  const std::string& refusal() const { return refusal_; }  ///< empty: it was not refused

  /// Starts it all; between() is called when forward has been started and backward not yet. Gradients count as written.
  void replay(const std::function<void()>& between);
  /// Of the step at hand; the next one writes over it.
  const Tensor& loss() const { return loss_; }

  /// Gives up what was noted.
  void drop();

 private:
  struct Kind {
    Shape x, y;
    DType x_type, y_type;
    Index global_batch;
    double loss_scale;
    bool operator==(const Kind&) const = default;
  };

  Device device_;
  Parameters& parameters_;
  std::unique_ptr<DeviceGraph> graph_;  // null: nothing is noted
  std::optional<Kind> last_;
  std::string refusal_;
  Tensor x_, y_, numbers_, loss_;  // numbers: i64 [1 + rows], the step's and the samples'
  std::vector<bool> written_;      // per entry: backward leaves a gradient
};

}  // namespace trireme
