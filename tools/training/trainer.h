// The trainer behind `trireme train`, and the exact evaluation that train and eval share.
#pragma once
#include <optional>
#include <string>

#include "datasets/core/loader.h"
#include "framework/layers/layer.h"
#include "parallel/comm/world/world.h"
#include "tools/training/config.h"
#include "tools/training/console.h"

namespace trireme {

struct Evaluation {
  Index correct = 0, in_top5 = 0, samples = 0, classes = 0;
  double loss = 0;  ///< mean over the samples
  double percent(Index count) const {
    return samples ? 100.0 * static_cast<double>(count) / static_cast<double>(samples) : 0;
  }
  double accuracy() const { return percent(correct); }
  /// Among five of at most five classes is every sample.
  bool has_top5() const { return classes > 5; }
  /// "test accuracy: 97.50 % (9750 of 10000), top-5 99.90 %, loss 0.08123"
  std::string text() const;
};
/// Counts every sample exactly once, on any number of ranks. A collective call. shard: for a model whose ranks of equal
/// shards work together on their rows; without one each rank runs the model by itself on rows of its own.
Evaluation evaluate(Module& model, Device, const Dataset&, const Config&, World&, Console&,
                    std::optional<RankShare> shard = {});

/// A whole run. A collective call; throws what went wrong.
void train(const Config&, World&);

}  // namespace trireme
