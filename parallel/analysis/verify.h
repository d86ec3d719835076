// verify(): trains a model under a strategy and beside it by the serial run, and finds the first tensor in which they
// differ.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "parallel/runtime/step.h"

namespace trireme {

struct VerifyOptions {
  int steps = 20;
  double tolerance = 1e-11;  ///< relative; fits f64
  StepOptions step = {};     ///< of the run under the strategy; the serial one takes what fits of it
  bool even_rows = false;    ///< batches lose their last rows where ranks would not have as many each
};

struct Difference {
  int step = 0;        ///< from 1
  std::string kind;    ///< "gradient", "value", "running statistic", "optimizer's momentum", "prediction" or "loss"
  std::string tensor;  ///< "layer1.0.conv1.weight"; of the loss: empty
  int rank = 0;        ///< the first that has it
  double absolute = 0, relative = 0;  ///< the largest of the tensor
  std::string to_string() const;
};

/// The global batch x, y of a step (from 0), the same on every rank.
using GlobalBatch = std::function<std::pair<Tensor, Tensor>(int step)>;
struct Subject {
  std::function<Module()> model;  ///< makes the same values at each call
  Loss loss;
  OptimizerConfig optimizer_config;
  GlobalBatch batch;
};

/// The serial run cuts each global batch into the micro-batches that batch norm sees under the strategy: the plan's,
/// and, for a model with running statistics, each of those into its ranks' (or groups') rows; under NormScope::local
/// and group the running statistics of several ranks are averages and not compared. Equal means: of every parameter
/// (and running statistic, every tensor of the optimizer's state, the loss, and after the last step the model's output
/// in evaluation, from which all metrics come), the largest difference is at most tolerance times its largest number
/// (or a thousandth of the model's largest, if that is more). Where a step ends unequal, the first tensor in backward
/// order is named whose gradient differs, if any does. Returns the same on every rank; none: equal. A collective call.
/// against, if given: what the run was compared with, in words.
std::optional<Difference> verify(const Subject&, Mesh&, const Strategy&, const VerifyOptions& = {},
                                 std::string* against = nullptr);

}  // namespace trireme
