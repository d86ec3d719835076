// What a few repeated runs tell: centre and spread of numbers, an interval of their median, the time to an accuracy.
#pragma once
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace trireme {

/// Seconds to a target that was not reached: infinity, so that it sorts behind every time.
inline constexpr double never = std::numeric_limits<double>::infinity();

struct MedianInterval {
  double low = 0, high = 0;
  double coverage = 0;  ///< probability with which such an interval holds the median, in [0, 1]
};

double mean_of(std::span<const double>);             ///< NaN of none
double standard_deviation(std::span<const double>);  ///< of a sample, over n - 1; NaN of less than two
double median_of(std::span<const double>);  ///< of an even number the mean of the two in the middle; NaN of none
/// Interval of the median of a continuous distribution by order statistics (David and Nagaraja, Order Statistics, 7.1):
/// from the k-th smallest to the k-th largest, k the greatest with 1 - 2 P(Binomial(n, 1/2) < k) >= level. Below six
/// numbers no k gives 0.95: then it is from the smallest to the largest, with the coverage that this has, 0.9375 of
/// five. Of none NaN.
MedianInterval median_interval(std::span<const double>, double level = 0.95);
/// The mean without the smallest and the largest (MLPerf's rules for training); NaN of less than three.
double olympic_mean(std::span<const double>);
/// The first time of a curve of (seconds, accuracy) at which the accuracy is at least the target; never: it is not.
double time_to(std::span<const std::pair<double, double>> curve, double target);

}  // namespace trireme
