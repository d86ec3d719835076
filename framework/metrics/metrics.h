// Metrics of classification, segmentation and regression, as scikit-learn and torchmetrics define them. Each is a rule
// for Metric (framework/metrics/metric.h). All are computed on the host in f64. The results are the same bits however
// the rows are divided into batches and among ranks.
#pragma once
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "framework/metrics/metric.h"
#include "framework/tensor/tensor.h"

namespace trireme {

/// Number of rows whose largest logit is at the label (top-1). logits [..., C] of any dtype, labels i64 [...]. Throws
/// Error for other shapes and dtypes.
Index count_correct(const Tensor& logits, const Tensor& labels);
/// Number of rows whose label is among the k >= 1 largest logits (top-k). Shapes and errors as in count_correct(). Of
/// equal logits the lower class ranks first (torch.topk leaves this open). NaN ranks above any number, but a NaN at the
/// label is never right. A label outside [0, C), such as an ignored one, is never right either.
Index count_in_top(const Tensor& logits, const Tensor& labels, Index k);

/// Top-k accuracy: the share of rows whose label is among the k largest logits, from 0 to 1. NaN without rows. The
/// result is called "accuracy" for k = 1 and "top5_accuracy" for k = 5. prediction [..., C], target i64 [...].
struct TopK {
  Index k = 1;                                                                   ///< at least 1
  Index ignore_index = -100;                                                     ///< rows with this label do not count
  void add(MetricState&, const Tensor& prediction, const Tensor& target) const;  ///< counts a batch
  std::vector<MetricResult> results(const MetricState&) const;                   ///< see the type
};

/// Options of the metrics that count labels against predicted classes. Two forms of input are accepted:
/// - prediction [..., classes] and target i64 [...]: the predicted class has the largest logit;
/// - for two classes, prediction and target of one shape, target 0 or 1: the predicted class is prediction > threshold.
/// add() throws Error for labels outside [0, classes) other than ignore_index, for NaN predictions and for other
/// shapes.
struct ConfusionOptions {
  Index classes = 2;          ///< number of classes, at least 2
  Index ignore_index = -100;  ///< labels with this value do not count
  double threshold = 0;       ///< of the second form: 0 for logits, 0.5 for probabilities
};
/// sklearn.metrics.confusion_matrix. The result is "accuracy", the share of labels that were predicted; matrix()
/// returns the counts.
struct ConfusionMatrix {
  ConfusionOptions options;                                                      ///< classes and ignored labels
  void add(MetricState&, const Tensor& prediction, const Tensor& target) const;  ///< counts a batch
  std::vector<MetricResult> results(const MetricState&) const;                   ///< see the type
  /// i64 [classes, classes]: element [i, j] counts the samples of label i that were predicted as class j.
  Tensor matrix(const MetricState&) const;
};

/// How the scores of the classes become one number. macro: their mean over the classes that occur as a label or a
/// prediction. weighted: the same mean, weighted by the number of labels. micro: one score from the summed counts.
/// binary: the score of class 1.
enum class Average : std::uint8_t { macro, weighted, micro, binary };
/// sklearn.metrics.precision_recall_fscore_support: "precision", "recall" and "f1". A score is 0 where a class was
/// never predicted or never occurs.
struct PrecisionRecallF1 {
  ConfusionOptions options;                                                      ///< classes and ignored labels
  Average average = Average::macro;                                              ///< how classes become one number
  void add(MetricState&, const Tensor& prediction, const Tensor& target) const;  ///< counts a batch
  std::vector<MetricResult> results(const MetricState&) const;                   ///< see the type
};
/// Intersection over union (Jaccard index) of labels and predictions: "iou", the mean over the classes that occur.
struct MeanIoU {
  ConfusionOptions options;                                                      ///< classes and ignored labels
  void add(MetricState&, const Tensor& prediction, const Tensor& target) const;  ///< counts a batch
  std::vector<MetricResult> results(const MetricState&) const;                   ///< see the type
};

/// Dice coefficient: twice the correct predictions of a class, divided by its labels plus its predictions (the F1 score
/// of the class). The result is "dice", the mean over the classes from `first` on that occur; NaN if none occurs.
struct Dice {
  ConfusionOptions options;  ///< classes and ignored labels
  Index first = 1;           ///< first class that counts; class 0 is the background in most segmentations
  void add(MetricState&, const Tensor& prediction, const Tensor& target) const;  ///< counts a batch
  std::vector<MetricResult> results(const MetricState&) const;                   ///< see the type
};

/// sklearn.metrics.roc_auc_score ("roc_auc", ties count half) and average_precision_score ("average_precision"). Scores
/// are logits or probabilities. Two forms of input are accepted:
/// - prediction and target of one shape, target 0 or 1;
/// - prediction [..., C] and labels i64 [...] in [0, C): the mean over the classes, each class against the others.
/// NaN if a class, or every other class, does not occur. add() throws Error for other targets and for NaN scores. The
/// state keeps all scores.
struct Auc {
  Index ignore_index = -100;                                                     ///< targets that do not count
  void add(MetricState&, const Tensor& prediction, const Tensor& target) const;  ///< keeps a batch's scores
  std::vector<MetricResult> results(const MetricState&) const;                   ///< see the type
};

/// Errors over all elements of prediction and target, which have one shape: "mae", "mse", "rmse" and "r2". r2 is
/// scikit-learn's r2_score of one output: 1 - (sum of squared errors) / (sum of squared deviations of the target from
/// its mean). For a constant target r2 is 1 without errors, else 0. r2 is NaN for fewer than two elements.
struct RegressionErrors {
  void add(MetricState&, const Tensor& prediction, const Tensor& target) const;  ///< adds a batch's errors
  std::vector<MetricResult> results(const MetricState&) const;                   ///< see the type
};

/// Mean over all elements that a function of (prediction, target) returns. A loss with Reduction::none is such a
/// function:
///   MeanOf{"l1", [](const Tensor& p, const Tensor& t) { return l1_loss(p, t, Reduction::none); }}
struct MeanOf {
  std::string name;                                                              ///< of the result
  std::function<Tensor(const Tensor& prediction, const Tensor& target)> values;  ///< any shape, floating dtype
  void add(MetricState&, const Tensor& prediction, const Tensor& target) const;  ///< adds a batch's values
  std::vector<MetricResult> results(const MetricState&) const;                   ///< see the type
};

/// Weighted mean of a stream of numbers, for example the losses of steps (AverageMeter in PyTorch's examples).
class RunningMean {
 public:
  /// Adds a value that counts `weight` times.
  void add(double value, double weight = 1) {
    last_ = value;
    sum_.add(value * weight);
    weight_.add(weight);
  }
  double mean() const { return sum_.value() / weight_.value(); }  ///< NaN before the first value
  double last() const { return last_; }                           ///< the newest value; NaN before the first
  void reset() { *this = {}; }                                    ///< forgets all values

 private:
  ExactSum sum_, weight_;
  double last_ = NAN;
};

}  // namespace trireme
