// Loss and metrics of a model over a data set, each sample counted once whichever rank reads it.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "datasets/core/loader.h"
#include "framework/layers/module.h"
#include "framework/metrics/metric.h"
#include "framework/ops/ops.h"
#include "parallel/comm/world/world.h"

namespace trireme {

/// Loss, counts and metrics over a data set.
struct Evaluation {
  Index correct = 0,  ///< labels that are the likeliest class
      in_top5 = 0,    ///< labels that are among the five likeliest classes
      labels = 0;     ///< those in [0, classes), where predictions score them (scores_classes()); else 0
  Index samples = 0,  ///< of the data set
      classes = 0;    ///< of the data set; 0: it has none
  double loss = 0;    ///< mean of the batches' losses by samples, or by labels that count; NaN without a loss
  std::vector<MetricResult> metrics = {};  ///< of EvaluateOptions::metrics; of text perplexity and bits_per_byte, too
  std::vector<MetricState> states = {};    ///< of each of them, over all ranks: for ConfusionMatrix::matrix()
  /// count as a share of the labels, %; 0 without labels.
  double percent(Index count) const {
    return labels ? 100.0 * static_cast<double>(count) / static_cast<double>(labels) : 0;
  }
  double accuracy() const { return percent(correct); }  ///< %
  bool is_classified() const { return labels > 0; }     ///< whether there is an accuracy
  /// Among five of at most five classes is every sample.
  bool has_top5() const { return classes > 5; }
  /// "test accuracy: 97.50 % (9750 of 10000), top-5 99.90 %, loss 0.08123, f1 0.97"; without classes "test loss: ..."
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
  Loss loss = {};                    ///< a mean (Reduction::mean); null: cross-entropy of data with classes, else none
  std::vector<Metric> metrics = {};  ///< beside accuracy and top-5 of a data set with classes
  /// LoaderOptions::collate.
  Collate collate = {};
  /// Called before each batch with its number, from 0, and how many there are.
  std::function<void(Index batch, Index batches)> progress = {};
};
/// Whether a prediction [..., at least `classes`] scores classes that the target's labels, i64 [...], name.
bool scores_classes(const Tensor& prediction, const Tensor& target, Index classes);
/// Runs a model over the data set. A collective call; every rank returns the numbers of all: counts and metrics are the
/// same bits on any number of ranks that predict the same. Of samples that overlap, y has a field "counted" of its
/// shape, but for channels: elements at which it is 0 count for nothing, but in a loss of labels that is given. Throws
/// Error where samples were left out or counted twice.
Evaluation evaluate(Module& model, const Dataset&, World&, const EvaluateOptions& = {});

}  // namespace trireme
