// Metric: a number that says how good predictions are, kept over many batches and ranks (torchmetrics.Metric). A metric
// is a plain struct of settings with two members beside them, add() and results(); the library's own are in metrics.h,
// a user's is written like them, anywhere. What it keeps are counts, exact sums and rows, so that its results are the
// same bits however samples are divided into batches and among ranks.
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

/// What a metric keeps of the samples that it has seen; each vector may grow as samples come.
struct MetricState {
  Index samples = 0;                 ///< rows of predictions; Metric counts them
  std::vector<std::int64_t> counts;  ///< ranks add them up
  std::vector<ExactSum> sums;        ///< ranks add them up
  std::vector<double> rows;          ///< ranks put them one behind the other, in any order of ranks
  /// Counts and sums at i; 0 where there is none yet.
  std::int64_t count(std::size_t i) const { return i < counts.size() ? counts[i] : 0; }
  double sum(std::size_t i) const { return i < sums.size() ? sums[i].value() : 0; }
};

struct MetricResult {
  std::string name;  ///< of letters, digits and _-.: "f1", in metrics.jsonl "test_f1", in TensorBoard "test/f1"
  double value = 0;
};

/// A struct that Metric can hold. add() sees the prediction and the target of some rows, on the model's device, and is
/// not recorded for a backward pass; results() has the same names in the same order for every state, the empty one too.
template <class M>
concept MetricRule = requires(const M& rule, MetricState& state, const Tensor& tensor) {
  rule.add(state, tensor, tensor);
  { rule.results(std::as_const(state)) } -> std::same_as<std::vector<MetricResult>>;
};

class Metric {
 public:
  template <MetricRule M>
  Metric(M rule) : rule_(std::make_shared<Model<M>>(std::move(rule))) {}  // NOLINT: implicit
  /// The same rule with this text before the names of its results, where two would have one name:
  ///   Metric(PrecisionRecallF1{o, Average::micro}).with_prefix("micro_")
  Metric with_prefix(const std::string& text) const;
  /// Takes in the rows of a batch. Reads them on the host: waits for the device.
  void add(const Tensor& prediction, const Tensor& target);
  std::vector<MetricResult> results() const;  ///< of all that was added. Throws Error for a name of other characters
  void reset() { state_ = {}; }
  const MetricState& state() const { return state_; }
  void set_state(MetricState state) { state_ = std::move(state); }

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

/// The value of the result of that name. Throws Error, with the names there are, when there is none.
double result_of(const std::vector<MetricResult>&, const std::string& name);

}  // namespace trireme
