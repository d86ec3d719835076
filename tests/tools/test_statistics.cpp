// Statistics of repeated runs against their formulas.
#include "tools/study/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "tests/support/catch.h"

namespace test_statistics {

using namespace trireme;

namespace {

std::vector<double> drawn(std::mt19937_64& random, std::size_t n) {
  std::normal_distribution<double> normal(3, 2);
  std::vector<double> x(n);
  for (double& v : x) v = normal(random);
  return x;
}

/// P(X_(k) <= median <= X_(n + 1 - k)), of Pascal's triangle.
double coverage(int n, int k) {
  std::vector<double> row{1};
  for (int i = 0; i < n; ++i) {
    row.push_back(0);
    for (std::size_t j = row.size() - 1; j > 0; --j) row[j] = (row[j] + row[j - 1]) / 2;
    row[0] /= 2;
  }
  return std::accumulate(row.begin() + k, row.end() - k, 0.0);
}

}  // namespace

TEST_CASE("mean, standard deviation, median and olympic mean are those of their formulas") {
  std::mt19937_64 random(1);
  for (std::size_t n = 1; n <= 40; ++n) {
    std::vector<double> x = drawn(random, n);
    const double mean = std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(n);
    double squares = 0;
    for (const double v : x) squares += v * v;
    INFO(n);
    CHECK(mean_of(x) == Approx(mean));
    if (n > 1)
      CHECK(std::pow(standard_deviation(x), 2) * static_cast<double>(n - 1) ==
            Approx(squares - static_cast<double>(n) * mean * mean));
    const double median = median_of(x), olympic = olympic_mean(x);
    std::ranges::sort(x);
    CHECK(median == Approx((x[(n - 1) / 2] + x[n / 2]) / 2));
    if (n > 2)
      CHECK(olympic * static_cast<double>(n - 2) == Approx(mean * static_cast<double>(n) - x.front() - x.back()));
  }
  const std::vector<double> one{2}, two{1, 2}, lost{never, 3, 5, never}, third{never, 3, 5}, none;
  CHECK(std::isnan(mean_of(none)));
  CHECK(std::isnan(median_of(none)));
  CHECK(std::isnan(median_interval(none).low));
  CHECK(std::isnan(standard_deviation(one)));
  CHECK(std::isnan(olympic_mean(two)));
  CHECK(median_of(lost) == never);
  CHECK(median_of(third) == 5);
  CHECK(olympic_mean(lost) == never);
  CHECK(olympic_mean(third) == 5);
}

TEST_CASE("the interval of a median is the narrowest pair of order statistics that has the level") {
  std::mt19937_64 random(2);
  for (int n = 1; n <= 200; ++n) {
    std::vector<double> x = drawn(random, static_cast<std::size_t>(n));
    for (const double level : {0.5, 0.9, 0.95, 0.99}) {
      const MedianInterval got = median_interval(x, level);
      std::vector<double> y = x;
      std::ranges::sort(y);
      const int k = static_cast<int>(std::ranges::find(y, got.low) - y.begin()) + 1;
      INFO(n << " at " << level << ": " << k);
      CHECK(got.high == y[static_cast<std::size_t>(n - k)]);
      if (n == 1) continue;  // one number is no interval
      CHECK(got.coverage == Approx(coverage(n, k)).epsilon(1e-10));
      CHECK((got.coverage >= level - 1e-12 || k == 1));
      if (2 * (k + 1) <= n) CHECK(coverage(n, k + 1) < level);
    }
  }
  CHECK(median_interval(std::vector<double>{1, 2, 3, 4, 5}).coverage == Approx(0.9375));
  CHECK(median_interval(std::vector<double>{7}).coverage == 0);
}

TEST_CASE("intervals of medians hold the median as often as they say") {
  std::mt19937_64 random(4);
  for (const std::size_t n : {5, 9, 20}) {
    int held = 0;
    constexpr int many = 4000;
    double said = 0;
    for (int i = 0; i < many; ++i) {
      const MedianInterval found = median_interval(drawn(random, n));
      held += found.low <= 3 && 3 <= found.high;
      said = found.coverage;
    }
    INFO(n);
    CHECK(std::abs(held / static_cast<double>(many) - said) < 4 * std::sqrt(said * (1 - said) / many));
  }
}

TEST_CASE("the time to an accuracy is that of the first evaluation which has it") {
  std::mt19937_64 random(5);
  for (int i = 0; i < 200; ++i) {
    std::vector<std::pair<double, double>> curve;
    for (std::size_t p = 0; p < random() % 12; ++p)
      curve.emplace_back(static_cast<double>(p) + 0.5, static_cast<double>(random() % 100));
    const auto target = static_cast<double>(random() % 100);
    const auto first = std::ranges::find_if(curve, [&](const auto& point) { return point.second >= target; });
    CHECK(time_to(curve, target) == (first == curve.end() ? never : first->first));
  }
}

}  // namespace test_statistics
