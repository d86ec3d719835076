#include "framework/metrics/metrics.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "framework/ops/ops.h"
#include "kernels/core/dtype.h"

namespace trireme {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

double ratio(double part, double whole) { return whole > 0 ? part / whole : nan; }

void check_labels(const char* op, const Tensor& logits, const Tensor& labels) {
  check(labels && labels.dtype() == DType::i64, op, "labels are {}, expected i64",
        labels ? name_of(labels.dtype()) : "none");
  check(logits.rank() >= 1 && labels.shape() == logits.shape().without(logits.rank() - 1), op,
        "logits {} for labels {}: expected one for each row", logits.shape(), labels.shape());
}
/// Calls f(label, whether it is among the k largest) for each row.
template <class F>
void each_in_top(const char* op, const Tensor& logits, const Tensor& labels, Index k, F f) {
  check_labels(op, logits, labels);
  check(k >= 1, op, "k is {}, expected at least 1", k);
  const std::vector<double> all = logits.to_vector();
  const std::vector<Index> label_of = labels.to_vector<Index>();
  const Index classes = logits.dim(-1);
  for (std::size_t row = 0; row < label_of.size(); ++row) {
    const double* x = all.data() + static_cast<Index>(row) * classes;
    const Index label = label_of[row];
    if (label < 0 || label >= classes) {
      f(label, false);
      continue;
    }
    Index ahead = 0;
    for (Index c = 0; c < classes; ++c) ahead += x[c] > x[label] || (x[c] == x[label] && c < label) || x[c] != x[c];
    f(label, x[label] == x[label] && ahead < k);
  }
}

/// Numbers of prediction and target, element by element.
struct Pairs {
  std::vector<double> y, target;
  Pairs(const char* op, const Tensor& prediction, const Tensor& wanted)
      : y(prediction.to_vector()), target(wanted ? wanted.to_vector() : std::vector<double>{}) {
    check(wanted && prediction.shape() == wanted.shape(), op, "prediction is {}, target {}: expected equal shapes",
          prediction.shape(), wanted ? wanted.shape() : Shape{});
  }
};
double truth(const char* op, double target) {
  check(target == 0 || target == 1, ErrorKind::data, op, "a target is {}, expected 0 or 1", target);
  return target;
}

void check_number(const char* op, double prediction) {
  check(prediction == prediction, ErrorKind::numerics, op,
        "a prediction is nan, expected a number; look for NaN and infinite numbers in the inputs and the weights");
}

std::size_t cells(const ConfusionOptions& o) { return static_cast<std::size_t>(o.classes * o.classes); }
/// Adds to counts [label, class].
void add_confusions(MetricState& s, const Tensor& prediction, const Tensor& target, const ConfusionOptions& o) {
  const char* op = "confusion_matrix";
  check(o.classes >= 2, op, "{} classes, expected at least 2", o.classes);
  s.counts.resize(cells(o));
  const auto add = [&](Index label, Index taken) {
    if (label == o.ignore_index) return;
    check(label >= 0 && label < o.classes, ErrorKind::data, op, "a label is {}, expected 0 to {}", label,
          o.classes - 1);
    ++s.counts[static_cast<std::size_t>(label * o.classes + taken)];
  };
  if (o.classes == 2 && target && prediction.shape() == target.shape()) {
    const Pairs all(op, prediction, target);
    for (std::size_t i = 0; i < all.y.size(); ++i)
      if (check_number(op, all.y[i]), all.target[i] != static_cast<double>(o.ignore_index))
        add(static_cast<Index>(truth(op, all.target[i])), all.y[i] > o.threshold ? 1 : 0);
    return;
  }
  check_labels(op, prediction, target);
  check(prediction.dim(-1) == o.classes, op, "predictions are {}, the metric has {} classes", prediction.shape(),
        o.classes);
  for (const double score : prediction.to_vector()) check_number(op, score);
  const auto labels = target.to_vector<Index>(), taken = argmax(prediction).to_vector<Index>();
  for (std::size_t i = 0; i < labels.size(); ++i) add(labels[i], taken[i]);
}

/// Adds a * b without rounding.
void add_product(ExactSum& sum, double a, double b) {
  const double product = a * b;
  sum.add(product);
  sum.add(std::fma(a, b, -product));
}
/// Sum of (t - m)^2 over `count` values t, from the sums of t^2 and t, where m is their rounded mean: sum t^2 - 2 m sum
/// t + count m^2.
double squared_deviations(ExactSum all, ExactSum sum, double count) {
  const double high = sum.value(), m = high / count, whole = count * m;
  sum.add(-high);
  add_product(all, -2 * m, high);
  add_product(all, -2 * m, sum.value());
  add_product(all, whole, m);
  add_product(all, std::fma(count, m, -whole), m);
  return all.value();
}

/// The counts of one class in a confusion matrix.
struct ClassCounts {
  double hits = 0, labels = 0, taken = 0;  // of the class: correct predictions; labels; predictions
  bool occurs() const { return labels + taken > 0; }
  double precision() const { return taken > 0 ? hits / taken : 0; }
  double recall() const { return labels > 0 ? hits / labels : 0; }
  double f1() const { return occurs() ? 2 * hits / (labels + taken) : 0; }
  double iou() const { return hits / (labels + taken - hits); }
};
std::vector<ClassCounts> count_classes(const MetricState& s, Index classes) {
  std::vector<ClassCounts> all(static_cast<std::size_t>(classes));
  for (std::size_t label = 0; label < all.size(); ++label)
    for (std::size_t taken = 0; taken < all.size(); ++taken) {
      const auto count = static_cast<double>(s.count(label * all.size() + taken));
      all[label].labels += count;
      all[taken].taken += count;
      if (label == taken) all[label].hits = count;
    }
  return all;
}
ClassCounts together(const std::vector<ClassCounts>& all) {
  ClassCounts sum;
  for (const ClassCounts& c : all) {
    sum.hits += c.hits;
    sum.labels += c.labels;
    sum.taken += c.taken;
  }
  return sum;
}

/// Areas under the curves of rows (score, truth); NaN if one of the two truths does not occur.
struct Areas {
  double roc = nan, precision = nan;
};
Areas areas(std::vector<std::pair<double, double>> all) {
  double hits = 0, misses = 0;
  for (const auto& [score, truth] : all) (truth > 0 ? hits : misses) += 1;
  if (hits == 0 || misses == 0) return {};
  std::ranges::sort(all, std::greater<>(), [](const auto& a) { return a.first; });
  double above = 0, wrong = 0, roc = 0, precision = 0;  // hits and misses down to this score
  for (std::size_t i = 0; i < all.size();) {
    double right_here = 0, wrong_here = 0;
    const double score = all[i].first;
    for (; i < all.size() && all[i].first == score; ++i) (all[i].second > 0 ? right_here : wrong_here) += 1;
    roc += wrong_here * (above + right_here / 2);
    above += right_here;
    wrong += wrong_here;
    precision += right_here * above / (above + wrong);
  }
  return {roc / (hits * misses), precision / hits};
}

}  // namespace

Index count_correct(const Tensor& logits, const Tensor& labels) { return count_in_top(logits, labels, 1); }
Index count_in_top(const Tensor& logits, const Tensor& labels, Index k) {
  Index count = 0;
  each_in_top("count_in_top", logits, labels, k, [&](Index, bool in) { count += in; });
  return count;
}

void TopK::add(MetricState& s, const Tensor& prediction, const Tensor& target) const {
  s.counts.resize(2);
  each_in_top("top_k", prediction, target, k, [&](Index label, bool in) {
    if (label != ignore_index) {
      s.counts[0] += in;
      ++s.counts[1];
    }
  });
}
std::vector<MetricResult> TopK::results(const MetricState& s) const {
  return {{k == 1 ? "accuracy" : fmt::format("top{}_accuracy", k),
           ratio(static_cast<double>(s.count(0)), static_cast<double>(s.count(1)))}};
}

void ConfusionMatrix::add(MetricState& s, const Tensor& p, const Tensor& t) const { add_confusions(s, p, t, options); }
std::vector<MetricResult> ConfusionMatrix::results(const MetricState& s) const {
  const ClassCounts all = together(count_classes(s, options.classes));
  return {{"accuracy", ratio(all.hits, all.labels)}};
}
Tensor ConfusionMatrix::matrix(const MetricState& s) const {
  std::vector<std::int64_t> counts = s.counts;
  counts.resize(cells(options));
  return Tensor::from(counts, {options.classes, options.classes});
}

void PrecisionRecallF1::add(MetricState& s, const Tensor& p, const Tensor& t) const {
  add_confusions(s, p, t, options);
}
std::vector<MetricResult> PrecisionRecallF1::results(const MetricState& s) const {
  check(average != Average::binary || options.classes == 2, "precision_recall_f1",
        "Average::binary needs two classes, got {}: use another average", options.classes);
  const std::vector<ClassCounts> all = count_classes(s, options.classes);
  const auto joined = [&](double (ClassCounts::*score)() const) {
    if (average == Average::micro) return (together(all).*score)();
    if (average == Average::binary) return (all[1].*score)();
    double sum = 0, weights = 0;
    for (const ClassCounts& c : all) {
      const double weight = average == Average::weighted ? c.labels : c.occurs() ? 1 : 0;
      sum += weight * (c.*score)();
      weights += weight;
    }
    return ratio(sum, weights);
  };
  return {{"precision", joined(&ClassCounts::precision)},
          {"recall", joined(&ClassCounts::recall)},
          {"f1", joined(&ClassCounts::f1)}};
}

void MeanIoU::add(MetricState& s, const Tensor& p, const Tensor& t) const { add_confusions(s, p, t, options); }
std::vector<MetricResult> MeanIoU::results(const MetricState& s) const {
  double sum = 0, classes = 0;
  for (const ClassCounts& c : count_classes(s, options.classes))
    if (c.occurs()) {
      sum += c.iou();
      classes += 1;
    }
  return {{"iou", ratio(sum, classes)}};
}

void Dice::add(MetricState& s, const Tensor& p, const Tensor& t) const { add_confusions(s, p, t, options); }
std::vector<MetricResult> Dice::results(const MetricState& s) const {
  const std::vector<ClassCounts> all = count_classes(s, options.classes);
  double sum = 0, classes = 0;
  for (Index c = std::max<Index>(first, 0); c < options.classes; ++c)
    if (const ClassCounts& of = all[static_cast<std::size_t>(c)]; of.occurs()) {
      sum += of.f1();
      classes += 1;
    }
  return {{"dice", ratio(sum, classes)}};
}

void Auc::add(MetricState& s, const Tensor& prediction, const Tensor& target) const {
  const char* op = "auc";
  check(target.defined(), op, "there is no target");
  const bool pairs = prediction.shape() == target.shape();
  const std::vector<double> scores = prediction.to_vector(), targets = target.to_vector();
  if (!pairs) check_labels(op, prediction, target);
  const auto classes = pairs ? std::size_t{1} : static_cast<std::size_t>(prediction.dim(-1));
  s.counts.resize(1);  // rows are [target, scores]; without rows the number of scores is unknown
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] == static_cast<double>(ignore_index)) continue;
    if (classes == 1) truth(op, targets[i]);
    check(targets[i] >= 0 && (classes == 1 || targets[i] < static_cast<double>(classes)), ErrorKind::data, op,
          "a label is {}, expected 0 to {}", targets[i], classes - 1);
    s.rows.push_back(targets[i]);
    for (std::size_t c = 0; c < classes; ++c) {
      check_number(op, scores[i * classes + c]);
      s.rows.push_back(scores[i * classes + c]);
    }
    ++s.counts[0];
  }
}
std::vector<MetricResult> Auc::results(const MetricState& s) const {
  const auto rows = static_cast<std::size_t>(s.count(0));
  const std::size_t width = rows > 0 ? s.rows.size() / rows : 2, classes = width - 1;
  double roc = 0, precision = 0;
  for (std::size_t c = 0; c < classes; ++c) {
    std::vector<std::pair<double, double>> all;
    for (std::size_t i = 0; i < rows; ++i) {
      const double target = s.rows[i * width];
      all.emplace_back(s.rows[i * width + 1 + c], classes == 1 ? target : target == static_cast<double>(c) ? 1 : 0);
    }
    const Areas a = areas(std::move(all));
    roc += a.roc;
    precision += a.precision;
  }
  const auto count = static_cast<double>(classes);
  return {{"roc_auc", roc / count}, {"average_precision", precision / count}};
}

void RegressionErrors::add(MetricState& s, const Tensor& prediction, const Tensor& target) const {
  const Pairs all("regression_errors", prediction, target);
  s.counts.resize(1);
  s.sums.resize(4);  // of |error|, error^2, target, target^2
  for (std::size_t i = 0; i < all.y.size(); ++i) {
    const double t = all.target[i], error = all.y[i] - t;
    s.sums[0].add(std::abs(error));
    s.sums[1].add(error * error);
    s.sums[2].add(t);
    add_product(s.sums[3], t, t);
  }
  s.counts[0] += std::ssize(all.y);
}
std::vector<MetricResult> RegressionErrors::results(const MetricState& s) const {
  const auto count = static_cast<double>(s.count(0));
  const double spread = count > 0 ? squared_deviations(s.sums[3], s.sums[2], count) : 0;
  const double mse = ratio(s.sum(1), count), constant = s.sum(1) == 0 ? 1 : 0;
  const double r2 = count < 2 ? nan : spread == 0 ? constant : 1 - s.sum(1) / spread;
  return {{"mae", ratio(s.sum(0), count)}, {"mse", mse}, {"rmse", std::sqrt(mse)}, {"r2", r2}};
}

void MeanOf::add(MetricState& s, const Tensor& prediction, const Tensor& target) const {
  check(bool(values), "mean_of", "'{}' has no function", name);
  s.counts.resize(1);
  s.sums.resize(1);
  for (const double value : values(prediction, target).to_vector()) {
    s.sums[0].add(value);
    ++s.counts[0];
  }
}
std::vector<MetricResult> MeanOf::results(const MetricState& s) const {
  return {{name, ratio(s.sum(0), static_cast<double>(s.count(0)))}};
}

}  // namespace trireme
