// Metrics: counts of right answers against sorting, the others against scikit-learn; cut into pieces.
#include "framework/metrics/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "framework/ops/ops.h"
#include "framework/tensor/create.h"
#include "kernels/core/random.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"

namespace test_metrics {

using namespace trireme;
using test::contains;

TEST_CASE("the label is counted when a stable sort puts it among the first k") {
  constexpr Index rows = 60, classes = 9;
  std::vector<double> x(rows * classes), y(rows);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = Philox{3}(0, i)[0] % 5;  // many ties
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = Philox{3}(1, i)[0] % classes;
  for (DType type : {DType::f32, DType::f64, DType::bf16}) {
    const Tensor logits = Tensor::of(x, {rows, classes}, type), labels = Tensor::of(y, {rows}, DType::i64);
    for (Index k : {1, 2, 5, 9, 20}) {
      Index expected = 0;
      for (std::size_t row = 0; row < rows; ++row) {
        std::vector<std::size_t> order(classes);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(),
                         [&](auto a, auto b) { return x[row * classes + a] > x[row * classes + b]; });
        expected += std::find(order.begin(), order.end(), static_cast<std::size_t>(y[row])) - order.begin() < k;
      }
      CHECK(count_in_top(logits, labels, k) == expected);
      CHECK(count_in_top(logits.rows(0, 7), labels.rows(0, 7), k) +
                count_in_top(logits.rows(7, 7), labels.rows(7, 7), k) +
                count_in_top(logits.rows(7, rows), labels.rows(7, rows), k) ==
            expected);
      if (k == 1) CHECK(count_correct(logits, labels) == expected);
    }
  }
}

TEST_CASE("NaN is no answer, and an ignored label none either") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor logits = Tensor::of(std::vector<double>{nan, 1, 2, 0}, {1, 4});
  const auto in_top = [&](double label, Index k) {
    return count_in_top(logits, Tensor::of(std::vector<double>{label}, {1}, DType::i64), k);
  };
  CHECK(in_top(0, 4) == 0);
  CHECK(in_top(2, 1) == 0);
  CHECK(in_top(2, 2) == 1);
  CHECK(in_top(-100, 4) == 0);
  CHECK_ERROR(in_top(1, 0), usage, "count_in_top", 0);
  CHECK_ERROR(count_in_top(logits, Tensor::zeros({2}, DType::i64), 1), usage, "[1, 4]", "[2]");
}

namespace {

/// Numbers of many magnitudes, subnormal ones too.
std::vector<double> wild(std::mt19937_64& dice, int count) {
  std::vector<double> all;
  for (int i = 0; i < count; ++i) {
    const double v = std::ldexp(static_cast<double>(dice() % 2001) - 1000, static_cast<int>(dice() % 2000) - 1080);
    all.push_back(dice() % 3 ? v : std::ldexp(static_cast<double>(dice()), -60));
  }
  return all;
}

/// A random problem of each kind.
struct Problem {
  Tensor logits, labels, scores, truths, y, t;
  std::vector<double> addends;
  explicit Problem(std::mt19937_64& dice) {
    const auto classes = static_cast<Index>(2 + dice() % 6);
    const Index rows = 3 * classes + static_cast<Index>(dice() % 60);
    std::vector<double> l, c, s, r, a, b;
    for (Index i = 0; i < rows; ++i) {
      c.push_back(static_cast<double>(i < 2 * classes ? i % classes : static_cast<Index>(dice()) & 1));
      for (Index k = 0; k < classes; ++k) l.push_back(static_cast<double>(dice() % 9));  // ties
      s.push_back(static_cast<double>(dice() % 7) - 3);
      r.push_back(static_cast<double>(i < 2 ? i : dice() % 2));
      b.push_back(1e6 + static_cast<double>(dice() % 1000) / 64);
      a.push_back(b.back() + static_cast<double>(dice() % 9) - 4);
    }
    logits = Tensor::of(l, {rows, classes}, DType::f64);
    labels = Tensor::of(c, {rows}, DType::i64);
    scores = Tensor::of(s, {rows}, DType::f64);
    truths = Tensor::of(r, {rows}, DType::i64);
    y = Tensor::of(a, {rows}, DType::f64);
    t = Tensor::of(b, {rows}, DType::f64);
    addends = wild(dice, 200);
  }
  struct Use {
    Metric metric;
    Tensor prediction, target;
  };
  std::vector<Use> uses() const {
    const ConfusionOptions many{.classes = logits.dim(1)};
    return {{ConfusionMatrix{many}, logits, labels},
            {PrecisionRecallF1{many}, logits, labels},
            {PrecisionRecallF1{many, Average::weighted}, logits, labels},
            {PrecisionRecallF1{many, Average::micro}, logits, labels},
            {PrecisionRecallF1{{}, Average::binary}, scores, truths},
            {MeanIoU{many}, logits, labels},
            {Dice{many, 0}, logits, labels},
            {Dice{many}, logits, labels},
            {Auc{}, scores, truths},
            {Auc{}, logits, labels},
            {TopK{2}, logits, labels},
            {RegressionErrors{}, y, t},
            {MeanOf{"l1", [](const Tensor& p, const Tensor& w) { return l1_loss(p, w, Reduction::none); }}, y, t}};
  }
};

std::vector<double> numbers(const Metric& metric) {
  std::vector<double> all;
  for (const MetricResult& r : metric.results()) all.push_back(r.value);
  return all;
}

}  // namespace

TEST_CASE("an exact sum has the same bits in any order and grouping") {
  std::mt19937_64 dice(17);
  for (int round = 0; round < 50; ++round) {
    std::vector<double> all = wild(dice, 1 + static_cast<int>(dice() % 300));
    ExactSum one;
    for (const double v : all) one.add(v);
    std::shuffle(all.begin(), all.end(), dice);
    ExactSum joined, part;
    for (const double v : all) {
      part.add(v);
      if (dice() % 5) continue;
      dice() % 2 ? joined.add(part) : joined.add(ExactSum::from_parts(part.parts()));
      part = {};
    }
    joined.add(part);
    CHECK(joined.value() == one.value());
    for (const double v : all) joined.add(-v);
    CHECK(joined.value() == 0);
  }
  ExactSum odd;
  odd.add(std::numeric_limits<double>::max());
  odd.add(std::numeric_limits<double>::max());
  CHECK(odd.value() == std::numeric_limits<double>::infinity());
  odd.add(-std::numeric_limits<double>::max());
  CHECK(odd.value() == std::numeric_limits<double>::max());
  odd.add(std::numeric_limits<double>::infinity());
  CHECK(odd.value() == std::numeric_limits<double>::infinity());
  odd.add(-std::numeric_limits<double>::infinity());
  CHECK(std::isnan(odd.value()));
}

TEST_CASE("metrics are scikit-learn's") {
  constexpr int cases = 20;
  std::mt19937_64 dice(5);
  std::vector<Problem> problems;
  const test::Oracle oracle;
  for (int k = 0; k < cases; ++k) {
    const Problem& p = problems.emplace_back(dice);
    const auto put = [&](const char* name, const Tensor& t) { oracle.put(name + std::to_string(k), t); };
    put("logits", p.logits);
    put("labels", p.labels.to(DType::f64));
    put("scores", p.scores);
    put("truths", p.truths.to(DType::f64));
    put("y", p.y);
    put("t", p.t);
    oracle.put("addends" + std::to_string(k), p.addends);
  }
  if (!oracle.run("sklearn_metrics.py", std::to_string(cases), test::Python::oracles)) return;
  for (int k = 0; k < cases; ++k) {
    std::vector<double> ours;
    for (auto& [metric, prediction, target] : problems[static_cast<std::size_t>(k)].uses()) {
      metric.add(prediction, target);
      const auto of = numbers(metric);
      ours.insert(ours.end(), of.begin(), of.end());
    }
    const Problem& p = problems[static_cast<std::size_t>(k)];
    ours.pop_back();             // l1 is mae
    ours.erase(ours.end() - 2);  // rmse
    ExactSum sum;
    for (const double v : p.addends) sum.add(v);
    ours.push_back(sum.value());
    const std::vector<double> theirs = oracle.get("out" + std::to_string(k));
    REQUIRE(ours.size() == theirs.size());
    for (std::size_t i = 0; i < ours.size(); ++i) {
      INFO("case " << k << ", number " << i);
      CHECK(std::abs(ours[i] - theirs[i]) <= 1e-12 * std::max(1.0, std::abs(theirs[i])));
    }
    MetricState counted;
    const ConfusionMatrix of{{.classes = p.logits.dim(1)}};
    of.add(counted, p.logits, p.labels);
    CHECK(of.matrix(counted).to_vector() == oracle.get("matrix" + std::to_string(k)));
  }
}

TEST_CASE("metrics have the same bits however rows are cut") {
  std::mt19937_64 dice(29);
  for (int round = 0; round < 20; ++round) {
    const Problem problem(dice);
    for (auto& [whole, prediction, target] : problem.uses()) {
      whole.add(prediction, target);
      Metric cut = whole;
      cut.reset();
      for (Index at = 0, rows = prediction.dim(0); at < rows;) {
        const Index end = std::min<Index>(rows, at + 1 + static_cast<Index>(dice() % 9));
        cut.add(prediction.rows(at, end), target.rows(at, end));
        at = end;
      }
      CHECK(numbers(cut) == numbers(whole));
      CHECK(cut.state().samples == whole.state().samples);
    }
  }
}

TEST_CASE("metrics of nothing, of ignored labels, and of what does not fit") {
  for (const Problem problem =
           [] {
             std::mt19937_64 d(1);
             return Problem(d);
           }();
       auto& use : problem.uses()) {
    const auto names = [&] {
      std::vector<std::string> all;
      for (const MetricResult& r : use.metric.results()) all.push_back(r.name);
      return all;
    };
    const auto before = names();
    CHECK(!before.empty());
    use.metric.add(use.prediction, use.target);
    CHECK(names() == before);
    CHECK_ERROR(result_of(use.metric.results(), "nonsense"), usage, before[0]);
    CHECK_ERROR(use.metric.add(Tensor(), use.target), usage, "metric");
    CHECK_THROWS(use.metric.add(use.prediction, Tensor::zeros({1, 1, 1, 1})));
  }
  const Tensor logits = Tensor::from<float>({{0, 1}, {1, 0}, {1, 0}}),
               labels = Tensor::from<std::int64_t>({1, -100, 1});
  Metric auc = Auc{}, less = Auc{};
  auc.add(logits, labels);
  less.add(take(logits, Tensor::from<std::int64_t>({0, 2})), Tensor::from<std::int64_t>({1, 1}));
  CHECK(auc.state().counts == less.state().counts);
  CHECK(auc.state().rows == less.state().rows);
  Metric f1 = PrecisionRecallF1{}, top = TopK{}, confusion = ConfusionMatrix{};
  for (Metric* m : {&f1, &top, &confusion}) m->add(logits, labels);
  CHECK(result_of(top.results(), "accuracy") == 0.5);
  CHECK(result_of(top.with_prefix("first_").results(), "first_accuracy") == 0.5);
  const Tensor none = Tensor::full({3, 2}, NAN);
  for (Metric* m : {&f1, &confusion, &auc}) CHECK_ERROR(m->add(none, labels), numerics);
  CHECK_ERROR(auc.add(logits, Tensor::from<std::int64_t>({0, 2, 0})), data, 2, 1, 0);
  for (const double label : {0.0, 1.0}) {  // of one class there is no order: neither 0 nor 1
    Metric single = Auc{};
    single.add(Tensor::from<float>({0.1F, 0.5F, 0.9F}), Tensor::full({3}, label));
    CHECK(std::isnan(result_of(single.results(), "roc_auc")));
    CHECK(std::isnan(result_of(single.results(), "average_precision")));
  }
  for (const double error : {0.0, 0.5}) {  // of a constant target, as scikit-learn's
    Metric constant = RegressionErrors{};
    constant.add(Tensor::full({4}, 1 + error), ones({4}));
    CHECK(result_of(constant.results(), "r2") == (error == 0 ? 1 : 0));
  }
  CHECK(result_of(confusion.results(), "accuracy") == 0.5);
  CHECK_ERROR(confusion.add(logits, Tensor::from<std::int64_t>({0, 2, 0})), data, 2, 1, 0);
  RunningMean mean;
  CHECK(std::isnan(mean.mean()));
  mean.add(1, 3);
  mean.add(5);
  CHECK((mean.mean() == 2 && mean.last() == 5));
}

}  // namespace test_metrics
