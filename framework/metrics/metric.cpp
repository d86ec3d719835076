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

double result_of(const std::vector<MetricResult>& results, const std::string& name) {
  const auto at = std::ranges::find(results, name, &MetricResult::name);
  if (at != results.end()) return at->value;
  std::vector<std::string> names;
  for (const MetricResult& r : results) names.push_back(r.name);
  fail("metric", "there is no result '{}'; there are: {}", name, fmt::join(names, ", "));
}

}  // namespace trireme
