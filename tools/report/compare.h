// Comparison of two groups of runs that are paired by seed: an exact sign-flip permutation test (Good, Permutation,
// Parametric and Bootstrap Tests of Hypotheses, 2005, 3.2.1).
#pragma once
#include <string>
#include <vector>

namespace trireme {

struct PairedDifference {
  /// Share of the sign flips whose mean is at least as far from 0: two-sided p under the hypothesis that differences
  /// are symmetric about 0.
  double p = 1;
  /// Interval of the centre of the differences, by inverting the test: from the k-th smallest to the k-th largest mean
  /// of a subset (Hartigan, Using subsample values as typical values, 1969).
  double low = 0, high = 0;
  double level = 0;  ///< probability that such an interval holds the centre
};
/// Tries all flips of up to 20 differences, and 2^20 random ones of more. The interval has a level of 0.95 or the next
/// higher; for fewer than six differences it spans all of them. Throws Error for fewer than two differences.
PairedDifference paired_difference(const std::vector<double>& differences);

/// A table of B - A for each metric. Each path is a run directory, or a folder of run directories. Throws Error if
/// there is no run, if a folder has a seed twice, and if no seed is in both.
std::string comparison_text(const std::string& a, const std::string& b);

}  // namespace trireme
