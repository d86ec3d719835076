// The library's metrics (framework/metrics/metric.h), with scikit-learn's and torchmetrics' definitions, and counts of
// right answers. Computed on the host, in f64. Counts, sums and therefore results do not depend, in any bit, on how
// rows are divided into batches and among ranks.
#pragma once
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "framework/metrics/metric.h"
#include "framework/tensor/tensor.h"

namespace trireme {

/// Rows whose largest logit is at the label (top-1). logits [..., C] of any type, labels i64 [...]. Throws Error for
/// other shapes and types.
Index count_correct(const Tensor& logits, const Tensor& labels);
/// Rows whose label is among the k >= 1 largest logits (top-k); shapes and errors as above. Of equal logits the one of
/// the lower class counts as larger (which torch.topk leaves open), and a NaN is larger than any number; at the label
/// it never counts, nor does a label that is no class (an ignored one).
Index count_in_top(const Tensor& logits, const Tensor& labels, Index k);

/// Share of the labels, but for ignored ones, that are among the k largest logits, 0 to 1 (NaN of none): "accuracy", of
/// k > 1 "top5_accuracy".
/// Prediction [..., C], target i64 [...].
struct TopK {
  Index k = 1;
  Index ignore_index = -100;  ///< labels that do not count
  void add(MetricState&, const Tensor& prediction, const Tensor& target) const;
  std::vector<MetricResult> results(const MetricState&) const;
};

/// What of classes confusion matrices know. Prediction [..., classes] and target i64 [...]: the class of the largest
/// logit; or, of two classes, prediction and target of one shape, target 0 or 1: class 1 where prediction > threshold.
/// Throws Error for labels outside [0, classes) that are not ignored, predictions that are NaN, and other shapes.
struct ConfusionOptions {
  Index classes = 2;
  Index ignore_index = -100;
  double threshold = 0;  ///< of logits; 0.5 for probabilities
};
/// sklearn.metrics.confusion_matrix: "accuracy", the share of labels that are right; and matrix().
struct ConfusionMatrix {
  ConfusionOptions options;
  void add(MetricState&, const Tensor& prediction, const Tensor& target) const;
  std::vector<MetricResult> results(const MetricState&) const;
  /// i64 [classes, classes]: how often label i was taken for class j.
  Tensor matrix(const MetricState&) const;
};

/// How scores of classes become one number: their mean over the classes that occur, as a label or a prediction; the
/// same weighted by labels; from the counts of all classes together; or the score of class 1 alone.
enum class Average : std::uint8_t { macro, weighted, micro, binary };
/// sklearn.metrics.precision_recall_fscore_support: "precision", "recall" and "f1", 0 where nothing was predicted or
/// nothing is there.
struct PrecisionRecallF1 {
  ConfusionOptions options;
  Average average = Average::macro;
  void add(MetricState&, const Tensor& prediction, const Tensor& target) const;
  std::vector<MetricResult> results(const MetricState&) const;
};
/// Intersection over union (Jaccard index) of labels and predictions, "iou": mean over the classes that occur.
struct MeanIoU {
  ConfusionOptions options;
  void add(MetricState&, const Tensor& prediction, const Tensor& target) const;
  std::vector<MetricResult> results(const MetricState&) const;
};

/// Dice coefficient of labels and predictions, twice the labels that are right over labels and predictions together,
/// which is a class's F1 score: "dice", mean over the classes from `first` on that occur; NaN if none does.
struct Dice {
  ConfusionOptions options;
  Index first = 1;  ///< class 0 is what lies around the others, in most segmentations
  void add(MetricState&, const Tensor& prediction, const Tensor& target) const;
  std::vector<MetricResult> results(const MetricState&) const;
};

/// sklearn.metrics.roc_auc_score and average_precision_score: "roc_auc" (ties count half) and "average_precision" of
/// scores, logits or probabilities, against a target of one shape, 0 or 1; or of prediction [..., C] against labels i64
/// [...] in [0, C), each class against the rest, mean over the classes. NaN where a class, or its rest, does not occur.
/// Throws Error for other targets and scores that are NaN. Keeps all scores.
struct Auc {
  Index ignore_index = -100;  ///< targets that do not count
  void add(MetricState&, const Tensor& prediction, const Tensor& target) const;
  std::vector<MetricResult> results(const MetricState&) const;
};

/// Of prediction and target of one shape, over all elements: "mae", "mse", "rmse", and "r2" (1 - squared errors over
/// squared deviations of the target from its mean; of a constant target 1 without errors, else 0; NaN of less than two
/// elements: scikit-learn's r2_score of one output).
struct RegressionErrors {
  void add(MetricState&, const Tensor& prediction, const Tensor& target) const;
  std::vector<MetricResult> results(const MetricState&) const;
};

/// The mean of all elements of what a function makes of prediction and target, as a loss with Reduction::none:
///   MeanOf{"l1", [](const Tensor& p, const Tensor& t) { return l1_loss(p, t, Reduction::none); }}
struct MeanOf {
  std::string name;
  std::function<Tensor(const Tensor& prediction, const Tensor& target)> values;
  void add(MetricState&, const Tensor& prediction, const Tensor& target) const;
  std::vector<MetricResult> results(const MetricState&) const;
};

/// The mean of numbers as they come, of a step's losses for instance (the AverageMeter of PyTorch's examples).
class RunningMean {
 public:
  void add(double value, double weight = 1) { last_ = value, sum_.add(value * weight), weight_.add(weight); }
  double mean() const { return sum_.value() / weight_.value(); }  ///< NaN before the first
  double last() const { return last_; }                           ///< NaN before the first
  void reset() { *this = {}; }

 private:
  ExactSum sum_, weight_;
  double last_ = NAN;
};

}  // namespace trireme
