// StrategyClaim: a property that a strategy promises in addition to its exactness (Claim in
// parallel/strategies/strategy.h). It is data in the strategy's row; verify measures it
// (parallel/analysis/verify_claims.h).
#pragma once
#include <cstdint>
#include <string>

namespace trireme {

/// A measurable promise of a strategy.
struct StrategyClaim {
  /// What is promised.
  enum class Kind : std::uint8_t {
    /// With the options `with` it equals the serial run, for SGD without momentum and equal numbers of rows per worker.
    limit,
    /// The servers' weights equal a serial loop that applies the workers' gradients in order of arrival, for SGD
    /// without momentum; no worker is further ahead than the plan's consistency allows.
    delayed,
    /// Exchanges do not change the sum of all workers' weights, if all have equal numbers of rows.
    mean_preserved,
    /// Sent values plus the remaining error equal the gradients plus the previous error (error feedback).
    error_feedback
  };
  Kind kind;              ///< what is promised
  std::string when = {};  ///< options for which the claim holds: "mode=async"; empty: all
  std::string with = {};  ///< options that replace the given ones for the measurement; "staleness=" removes one
  double tolerance = 0;   ///< relative tolerance, if larger than the requested one, for sums in a narrow type
  /// For mean_preserved, names of plan states; empty: none.
  std::string center = {},  ///< counts as one more worker
      numerator = {},       ///< is summed instead of the weights, which are numerator / divisor
      divisor = {};         ///< see numerator
  bool operator==(const StrategyClaim&) const = default;  ///< member by member
};
/// One line: "limit: with every=1 it equals the serial run".
std::string to_string(const StrategyClaim&);

}  // namespace trireme
