// StrategyClaim: what a strategy promises beside its exactness (Claim in parallel/strategies/strategy.h), as data that
// stands in its row; verify measures it (parallel/analysis/verify_claims.h).
#pragma once
#include <cstdint>
#include <string>

namespace trireme {

struct StrategyClaim {
  enum class Kind : std::uint8_t {
    /// With the options `with` it equals the serial run, for SGD without momentum and as many rows for each worker.
    limit,
    /// Servers' weights are those of a serial loop that applies one worker's gradient after the other in the order in
    /// which they came, for SGD without momentum; no worker is further ahead than the plan's consistency allows.
    delayed,
    /// Meetings leave the sum of all workers' weights as it was, where each has as many rows.
    mean_preserved,
    /// What reductions send and what they keep for later add up to the gradients and what was kept before.
    error_feedback
  };
  Kind kind;
  std::string when = {};  ///< options that it claims this with, as all others have them: "mode=async"; empty: any
  std::string with = {};  ///< options to measure it with, in the place of those given; "staleness=": takes one out
  double tolerance = 0;   ///< relative, where that is more than what is asked for: of a sum in a narrow type
  /// Of mean_preserved, states of the plan: a center that counts as one more worker; or the numbers that are to be
  /// summed, where the model's weights are these divided by `divisor`. Empty: there is none.
  std::string center = {}, numerator = {}, divisor = {};
  bool operator==(const StrategyClaim&) const = default;  ///< member by member
};
/// "limit: with every=1 it equals the serial run", for one line.
std::string to_string(const StrategyClaim&);

}  // namespace trireme
