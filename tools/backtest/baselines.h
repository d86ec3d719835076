// Predictions that need nothing but a family's own calibration rows: what a model has to beat.
#pragma once
#include <array>
#include <string_view>
#include <vector>

#include "tools/backtest/scaling_table.h"

namespace trireme {

enum class Baseline { proportional, line, ring };
inline constexpr std::array baselines = {Baseline::proportional, Baseline::line, Baseline::ring};
std::string_view name_of(Baseline);

/// Milliseconds of the rows behind family.calibration. Proportional: to samples, from the smallest system. Line:
/// c0 + c1 samples. Ring: c0 + c1 samples + k 2 (n - 1) / n, with c0 4.9 % of the smallest system's step. Least squares
/// of relative errors over the calibration rows; a c0 or k that would be below 0, or leaves no c1 above 0, is 0.
std::vector<double> predict(const ScalingFamily&, Baseline);

}  // namespace trireme
