// StrategyClaim: a property that a strategy promises in addition to its Claim (parallel/strategies/strategy.h), such as
// a limit in which it equals the serial run. The strategy's row lists its claims; `trireme plan verify` measures them
// (parallel/analysis/verify_claims.h).
#pragma once
#include <cstdint>
#include <string>

namespace trireme {

/// A measurable promise of a strategy.
struct StrategyClaim {
  /// What is promised.
  enum class Kind : std::uint8_t {
    /// With the options in `with`, the strategy equals the serial run, for SGD without momentum and equal numbers of
    /// rows per worker.
    limit,
    /// The servers' weights equal those of a serial loop that applies the workers' gradients in the order of arrival,
    /// for
    /// SGD without momentum. No worker is further ahead than Plan::consistency allows.
    delayed,
    /// Exchanges do not change the sum of all workers' weights, if all have equal numbers of rows.
    mean_preserved,
    /// Error feedback: the values that a rank sends, plus its new error, equal its gradients plus its previous error.
    error_feedback
  };
  Kind kind;              ///< what is promised
  std::string when = {};  ///< options for which the claim holds: "mode=async"; empty: all
  std::string with = {};  ///< options that replace the given ones for the measurement; "staleness=" removes one
  /// Relative tolerance, for sums in a narrow type; the larger of this and the caller's tolerance is used.
  double tolerance = 0;
  /// For mean_preserved: names of states of the plan; empty: none.
  std::string center = {},  ///< counted in the sum as one more worker (easgd)
      numerator = {},       ///< summed in place of the weights, which are numerator / divisor (push-sum)
      divisor = {};         ///< summed, too; see numerator
  bool operator==(const StrategyClaim&) const = default;  ///< member by member
};
/// One line: "limit: with every=1 it equals the serial run".
std::string to_string(const StrategyClaim&);

}  // namespace trireme
