#include "tools/study/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace trireme {
namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

std::vector<double> sorted(std::span<const double> x) {
  std::vector<double> y(x.begin(), x.end());
  std::ranges::sort(y);
  return y;
}

/// P(Binomial(n, 1/2) = k)
double half_binomial(double n, double k) {
  return std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) - n * std::log(2.0));
}

}  // namespace

double mean_of(std::span<const double> x) {
  return x.empty() ? none : std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

double standard_deviation(std::span<const double> x) {
  if (x.size() < 2) return none;
  const double mean = mean_of(x);
  double sum = 0;
  for (const double v : x) sum += (v - mean) * (v - mean);
  return std::sqrt(sum / static_cast<double>(x.size() - 1));
}

double median_of(std::span<const double> x) {
  if (x.empty()) return none;
  const std::vector<double> y = sorted(x);
  const std::size_t middle = y.size() / 2;
  return y.size() % 2 == 1 || y[middle - 1] == y[middle] ? y[middle] : (y[middle - 1] + y[middle]) / 2;
}

MedianInterval median_interval(std::span<const double> x, double level) {
  if (x.empty()) return {none, none, 0};
  const std::vector<double> y = sorted(x);
  const auto n = static_cast<double>(y.size());
  double outside = 2 * half_binomial(n, 0);  // both tails of P(Binomial < k)
  std::size_t k = 1;
  while (2 * k + 1 < y.size()) {
    const double more = outside + 2 * half_binomial(n, static_cast<double>(k));
    if (1 - more < level) break;
    outside = more;
    ++k;
  }
  return {y[k - 1], y[y.size() - k], std::max(0.0, 1 - outside)};
}

double olympic_mean(std::span<const double> x) {
  if (x.size() < 3) return none;
  const std::vector<double> y = sorted(x);
  return mean_of(std::span(y).subspan(1, y.size() - 2));
}

double time_to(std::span<const std::pair<double, double>> curve, double target) {
  double first = never;
  for (const auto& [seconds, accuracy] : curve)
    if (accuracy >= target) first = std::min(first, seconds);
  return first;
}

}  // namespace trireme
