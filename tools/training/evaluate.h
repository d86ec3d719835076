// Accuracy and loss of a classifier over a data set, each sample counted once whichever rank reads it.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "datasets/core/loader.h"
#include "framework/layers/module.h"
#include "parallel/comm/world/world.h"

namespace trireme {

/// Counts and loss over a data set.
struct Evaluation {
  Index correct = 0,  ///< samples whose label is the likeliest class
      in_top5 = 0;    ///< samples whose label is among the five likeliest classes
  Index samples = 0,  ///< of the data set
      classes = 0;    ///< of the data set
  double loss = 0;    ///< cross-entropy, mean over the samples
  /// count as a share of the samples, %; 0 without samples.
  double percent(Index count) const {
    return samples ? 100.0 * static_cast<double>(count) / static_cast<double>(samples) : 0;
  }
  double accuracy() const { return percent(correct); }  ///< %
  /// Among five of at most five classes is every sample.
  bool has_top5() const { return classes > 5; }
  /// "test accuracy: 97.50 % (9750 of 10000), top-5 99.90 %, loss 0.08123"
  std::string text() const;
};

/// Options of evaluate().
struct EvaluateOptions {
  Index batch = 500;         ///< samples per batch, over all ranks together
  int workers = 1;           ///< threads per rank that read ahead
  DType dtype = DType::f32;  ///< of activations
  Device device = cpu();     ///< where the model's weights lie
  /// Step::shard() of a model whose weights ranks share (Step::is_tensor_parallel): ranks of equal shards work together
  /// on their rows. None: each rank runs the whole model on rows of its own.
  std::optional<RankShare> shard = {};
  /// Called before each batch with its number, from 0, and how many there are.
  std::function<void(Index batch, Index batches)> progress = {};
};
/// Runs a model from [N, H, W, C] to logits [N, classes] over the data set. A collective call; every rank returns the
/// sums of all. Throws Error where samples were left out or counted twice.
Evaluation evaluate(Module& model, const Dataset&, World&, const EvaluateOptions& = {});

}  // namespace trireme
