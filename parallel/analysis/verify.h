// verify(): trains a model under a strategy and by a serial run, and finds the first tensor in which they differ.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "parallel/runtime/step.h"

namespace trireme {

struct VerifyOptions {
  int steps = 20;
  double tolerance = 1e-11;  ///< relative; default for f64
  StepOptions step = {};     ///< of the run under the strategy; the serial run uses the options that apply to it
  bool even_rows = false;    ///< drop the last rows of batches if ranks would have different numbers of rows
};

struct Difference {
  int step = 0;        ///< from 1
  std::string kind;    ///< "gradient", "value", "running statistic", "optimizer's momentum", "prediction" or "loss"
  std::string tensor;  ///< "layer1.0.conv1.weight"; of the loss: empty
  int rank = 0;        ///< first rank with the difference
  double absolute = 0, relative = 0;  ///< largest difference in the tensor
  std::string to_string() const;
};

/// The global batch (x, y) of a step (from 0), equal on every rank.
using GlobalBatch = std::function<std::pair<Tensor, Tensor>(int step)>;
struct Subject {
  std::function<Module()> model;  ///< builds a model with equal values at each call
  Loss loss;
  OptimizerConfig optimizer_config;
  GlobalBatch batch;
};

/// Compares both runs after every step. The serial run cuts each global batch as batch norm sees it under the strategy:
/// into the plan's micro-batches and, for a model with running statistics, into the rows of ranks or groups. Under
/// NormScope::local and group, running statistics of several ranks are averages and are not compared.
///
/// Equal means: for every tensor, the largest difference is at most tolerance times its largest number (or a thousandth
/// of the model's largest number, if that is more). Compared are parameters, running statistics, optimizer state, the
/// loss, and after the last step the model's output in evaluation, from which all metrics are computed. If a step ends
/// unequal, the result is the first tensor in backward order whose gradient differs, if any does. Returns the same on
/// every rank; none: equal. A collective call. against, if given: set to a description of the reference run.
std::optional<Difference> verify(const Subject&, Mesh&, const Strategy&, const VerifyOptions& = {},
                                 std::string* against = nullptr);

}  // namespace trireme
