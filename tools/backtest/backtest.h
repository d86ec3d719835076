// Back-test: predicts the larger systems of a table from its smaller ones, and reports the errors.
#pragma once
#include <array>
#include <vector>

#include "tools/backtest/baselines.h"
#include "tools/backtest/scaling_model.h"

namespace trireme {

/// Rows that must not contribute to a family's priors.
enum class LeaveOut {
  family,    ///< the family's predicted rows
  submitter  ///< those rows, and all families of the same submitter, whose systems are similar
};

/// One predicted row.
struct BacktestPoint {
  ScalingRow row;
  ScalingPrediction predicted;
  std::array<double, baselines.size()> baseline = {};  ///< milliseconds, in the order of `baselines`
  double error() const { return predicted.milliseconds / row.milliseconds - 1; }
  double baseline_error(std::size_t i) const { return baseline[i] / row.milliseconds - 1; }
  bool inside() const { return predicted.low <= row.milliseconds && row.milliseconds <= predicted.high; }
};

struct BacktestFamily {
  ScalingFamily family;
  std::vector<ScalingMember> members;  ///< priors learnt from the others
  std::vector<BacktestPoint> points;
};

/// Statistics of absolute errors in percent. Percentiles are interpolated linearly between the two nearest values.
struct ErrorTotals {
  int points = 0;
  double median = 0, mean = 0, p90 = 0, largest = 0;
};
ErrorTotals totals_of(std::vector<double> errors);

struct Backtest {
  std::vector<BacktestFamily> families;  ///< of three or more sizes
  int evidence = 0;                      ///< families of the table, from which priors are learnt
  int left_out = 0;                      ///< rows of the table that were not used
  LeaveOut leave_out = LeaveOut::family;
  ErrorTotals totals() const;
  ErrorTotals baseline_totals(std::size_t i) const;
  double coverage() const;  ///< share of points inside their band
};

/// Predicts each family of three or more sizes with the mixture of all scaling_forms(). The priors maximize the
/// likelihood of the other families. Uses all cores. Throws Error if there are fewer than three other families, or no
/// family to predict.
Backtest backtest(const ScalingTable&, LeaveOut = LeaveOut::family);

}  // namespace trireme
