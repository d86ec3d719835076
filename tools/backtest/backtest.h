// Back-test: larger systems of a table predicted from smaller ones, and how wrong that was.
#pragma once
#include <array>
#include <vector>

#include "tools/backtest/baselines.h"
#include "tools/backtest/scaling_model.h"

namespace trireme {

/// What a family's priors may not be learnt from.
enum class LeaveOut {
  family,    ///< its own predicted rows
  submitter  ///< those, and every family of its submitter, whose systems are alike
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

/// Of absolute errors; percentiles are interpolated between the two nearest.
struct ErrorTotals {
  int points = 0;
  double median = 0, mean = 0, p90 = 0, largest = 0;
};
ErrorTotals totals_of(std::vector<double> errors);

struct Backtest {
  std::vector<BacktestFamily> families;  ///< of three or more sizes
  int evidence = 0;                      ///< families of the table: what priors are learnt from
  int left_out = 0;                      ///< rows of the table
  LeaveOut leave_out = LeaveOut::family;
  ErrorTotals totals() const;
  ErrorTotals baseline_totals(std::size_t i) const;
  double coverage() const;  ///< share of points inside their band
};

/// Each family of three or more sizes is predicted by all scaling_forms() together, with the priors that make the other
/// families likeliest. On all cores. Throws Error when there are less than three other families to learn from, or none
/// to predict.
Backtest backtest(const ScalingTable&, LeaveOut = LeaveOut::family);

}  // namespace trireme
