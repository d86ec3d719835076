// Statistics of a few repeated runs: mean, spread, an interval of the median, and the time to an accuracy.
#pragma once
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace trireme {

/// Seconds to a target that was not reached: infinity, which sorts after every time.
inline constexpr double never = std::numeric_limits<double>::infinity();

struct MedianInterval {
  double low = 0, high = 0;
  double coverage = 0;  ///< probability that such an interval contains the median, in [0, 1]
};

double mean_of(std::span<const double>);             ///< NaN for no values
double standard_deviation(std::span<const double>);  ///< of a sample, with n - 1; NaN for fewer than two values
double median_of(std::span<const double>);  ///< for an even number of values, the mean of the two middle ones; NaN for
                                            ///< no values
/// Interval of the median of a continuous distribution from order statistics (David and Nagaraja, Order Statistics,
/// 7.1). It ranges from the k-th smallest to the k-th largest value. k is the greatest with 1 - 2 P(Binomial(n, 1/2) <
/// k) >= level. For fewer than six values no k gives 0.95. The interval then ranges from the smallest to the largest
/// value, with its actual coverage: 0.9375 for five values. NaN for no values.
MedianInterval median_interval(std::span<const double>, double level = 0.95);
/// Mean without the smallest and the largest value (MLPerf training rules); NaN for fewer than three values.
double olympic_mean(std::span<const double>);
/// First time at which a curve of (seconds, accuracy) is at least the target; never if it is not reached.
double time_to(std::span<const std::pair<double, double>> curve, double target);

}  // namespace trireme
