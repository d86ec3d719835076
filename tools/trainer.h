// The trainer behind `trireme train`, and the exact evaluation that train and eval share.
#pragma once
#include "datasets/loader.h"
#include "framework/layer.h"
#include "parallel/world.h"
#include "tools/config.h"
#include "tools/console.h"

namespace trireme {

struct Evaluation {
  Index correct = 0, samples = 0;
  double loss = 0;  ///< mean over the samples
  double accuracy() const { return samples ? 100.0 * static_cast<double>(correct) / static_cast<double>(samples) : 0; }
};
/// Counts every sample exactly once, on any number of ranks. A collective call.
Evaluation evaluate(Module& model, const Dataset&, const Config&, World&, Console&);

/// A whole run. A collective call; throws what went wrong.
void train(const Config&, World&);

}  // namespace trireme
