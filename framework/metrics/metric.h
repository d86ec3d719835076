// Metric: a measure of predictions over many batches and ranks (torchmetrics.Metric). A metric is a plain struct of
// settings with two member functions, add() and results(). The library's metrics are in metrics.h; write your own the
// same way, in any file. The state consists of counts, exact sums and rows, so that results are the same bits however
// samples are divided into batches and among ranks.
#pragma once
#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/metrics/exact_sum.h"
#include "framework/tensor/tensor.h"

namespace trireme {

/// The state of a metric: the numbers that it keeps of earlier rows. Vectors may grow as samples arrive.
struct MetricState {
  Index samples = 0;                 ///< number of rows of predictions; Metric counts them
  std::vector<std::int64_t> counts;  ///< summed over ranks
  std::vector<ExactSum> sums;        ///< summed over ranks
  std::vector<double> rows;          ///< concatenated over ranks, in any order
  /// Count i; 0 if there is none yet.
  std::int64_t count(std::size_t i) const { return i < counts.size() ? counts[i] : 0; }
  double sum(std::size_t i) const { return i < sums.size() ? sums[i].value() : 0; }  ///< sum i; 0 if there is none yet
};

/// A named result of a metric.
struct MetricResult {
  std::string name;  ///< letters, digits and _-. only: "f1" is "test_f1" in metrics.jsonl and "test/f1" in TensorBoard
  double value = 0;  ///< the result
};

/// A struct that Metric can hold. add() gets the predictions and targets of some rows, on the model's device, without
/// recording. results() returns the same names in the same order for every state, also for the empty state.
template <class M>
concept MetricRule = requires(const M& rule, MetricState& state, const Tensor& tensor) {
  rule.add(state, tensor, tensor);
  { rule.results(std::as_const(state)) } -> std::same_as<std::vector<MetricResult>>;
};

class Metric {
 public:
  /// Holds a rule, with an empty state.
  template <MetricRule M>
  Metric(M rule) : rule_(std::make_shared<Model<M>>(std::move(rule))) {}  // NOLINT: implicit
  /// The same rule with a prefix for the names of its results, if two metrics would have the same names:
  ///   Metric(PrecisionRecallF1{o, Average::micro}).with_prefix("micro_")
  Metric with_prefix(const std::string& text) const;
  /// Adds the rows of a batch. Reads them on the host: waits for the device.
  void add(const Tensor& prediction, const Tensor& target);
  std::vector<MetricResult> results() const;  ///< of all added rows; throws Error for a name with other characters
  void reset() { state_ = {}; }               ///< forgets all rows
  const MetricState& state() const { return state_; }               ///< for sums over ranks
  void set_state(MetricState state) { state_ = std::move(state); }  ///< for sums over ranks

 private:
  struct Concept {
    virtual ~Concept() = default;
    virtual void add(MetricState&, const Tensor& prediction, const Tensor& target) const = 0;
    virtual std::vector<MetricResult> results(const MetricState&) const = 0;
  };
  template <class M>
  struct Model final : Concept {
    explicit Model(M r) : rule(std::move(r)) {}
    void add(MetricState& s, const Tensor& p, const Tensor& t) const override { rule.add(s, p, t); }
    std::vector<MetricResult> results(const MetricState& s) const override { return rule.results(s); }
    M rule;
  };
  std::shared_ptr<const Concept> rule_;
  std::string prefix_;
  MetricState state_;
};

/// The value of the result with this name. Throws Error naming the existing results if there is none.
double result_of(const std::vector<MetricResult>&, const std::string& name);

}  // namespace trireme
