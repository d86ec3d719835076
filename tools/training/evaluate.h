// evaluate(): loss and metrics of a model over a data set, distributed over ranks; each sample counts once.
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
#include "parallel/runtime/parts_forward.h"

namespace trireme {

class Step;  // parallel/runtime/step.h

/// Loss, counts and metrics over a data set.
struct Evaluation {
  Index correct = 0,  ///< labels that equal the most likely class
      in_top5 = 0,    ///< labels among the five most likely classes
      labels = 0;     ///< labels in [0, classes), if predictions score classes (scores_classes()); else 0
  Index samples = 0,  ///< number of samples
      classes = 0;    ///< number of classes; 0: none
  double loss = 0;    ///< mean loss per sample, or per label that is not ignored; NaN without a loss
  std::vector<MetricResult> metrics =
      {};  ///< results of EvaluateOptions::metrics; for text also perplexity and bits_per_byte
  std::vector<MetricState> states = {};  ///< state of each metric over all ranks, for ConfusionMatrix::matrix()
  /// count as a percentage of the labels; 0 without labels.
  double percent(Index count) const {
    return labels ? 100.0 * static_cast<double>(count) / static_cast<double>(labels) : 0;
  }
  double accuracy() const { return percent(correct); }  ///< top-1 accuracy in %
  bool is_classified() const { return labels > 0; }     ///< whether there is an accuracy
  /// Whether top-5 is meaningful: with at most five classes it is always 100 %.
  bool has_top5() const { return classes > 5; }
  /// One line: "test accuracy: 97.50 % (9750 of 10000), top-5 99.90 %, loss 0.08123, f1 0.97"; without classes "test
  /// loss: ..."
  std::string text() const;
};

/// Options of evaluate().
struct EvaluateOptions {
  Index batch = 500;         ///< samples per batch, over all ranks together
  int workers = 1;           ///< threads per rank that read ahead
  DType dtype = DType::f32;  ///< type of activations
  Device device = cpu();     ///< device of the model's weights
  /// Step::shard() for a tensor-parallel model (Step::is_tensor_parallel): ranks with equal shards work together on the
  /// same rows. None: each rank runs the whole model on separate rows.
  std::optional<RankShare> shard = {};
  /// Runs the model part by part on ranks that lack weights (StepForward); `model` is then Step::model(), and shard is
  /// StepForward::share(). Null: this rank runs the model alone, or with the ranks of its shard.
  std::function<Tensor(const Tensor& x, const PartsForward::RunPart&)> forward = nullptr;
  Loss loss = {};                    ///< a mean (Reduction::mean); null: cross-entropy of data with classes, else none
  std::vector<Metric> metrics = {};  ///< in addition to accuracy and top-5 of a data set with classes
  /// Makes the batches: see LoaderOptions::collate.
  Collate collate = {};
  /// Called before each batch with its number, from 0, and the number of batches.
  std::function<void(Index batch, Index batches)> progress = {};
};
/// Makes evaluate() use the model of a Step, Step::model(), where ranks divide it: sets EvaluateOptions::shard and
/// forward. gathered: every rank has all weights (Step::gather_weights()). Returns false, and changes nothing, if each
/// rank can run the whole model alone: always after gather_weights(), except with layers that ranks divide.
bool divide(EvaluateOptions&, Step&, bool gathered = false);
/// Whether predictions are class scores: prediction is [..., at least `classes`] and target has labels, i64 [...].
bool scores_classes(const Tensor& prediction, const Tensor& target, Index classes);
/// Runs a model over the data set. A collective call; every rank returns the totals of all ranks. Counts and metrics
/// have the same bits for any number of ranks that make the same predictions. For overlapping samples y has a field
/// "counted" with y's shape without channels: elements with 0 are not counted, except in a given loss of labels. Throws
/// Error if samples were omitted or counted twice.
Evaluation evaluate(Module& model, const Dataset&, World&, const EvaluateOptions& = {});

}  // namespace trireme
