#include "framework/metrics/metric.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "framework/autograd/tape.h"

namespace trireme {

void Metric::add(const Tensor& prediction, const Tensor& target) {
  check(prediction.defined(), "metric", "there is no prediction");
  const NoGrad off;
  rule_->add(state_, prediction, target);
  state_.samples += prediction.rank() > 0 ? prediction.dim(0) : 1;
}

Metric Metric::with_prefix(const std::string& text) const {
  Metric other = *this;
  other.prefix_ = text + prefix_;
  return other;
}

std::vector<MetricResult> Metric::results() const {
  std::vector<MetricResult> all = rule_->results(state_);
  for (MetricResult& r : all) {
    r.name = prefix_ + r.name;
    const bool fits = !r.name.empty() && r.name.find_first_not_of(
                                             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                             "0123456789_-.") == r.name.npos;
    check(fits, "metric", "a result is called '{}': use letters, digits and _-.", r.name);
  }
  return all;
}

double result_of(const std::vector<MetricResult>& results, const std::string& name) {
  const auto at = std::ranges::find(results, name, &MetricResult::name);
  if (at != results.end()) return at->value;
  std::vector<std::string> names;
  for (const MetricResult& r : results) names.push_back(r.name);
  fail("metric", "there is no result '{}'; there are: {}", name, fmt::join(names, ", "));
}

}  // namespace trireme
