// Baselines: predictions from a family's calibration rows alone. A useful model must have smaller errors.
#pragma once
#include <array>
#include <string_view>
#include <vector>

#include "tools/backtest/scaling_table.h"

namespace trireme {

enum class Baseline { proportional, line, ring };
inline constexpr std::array baselines = {Baseline::proportional, Baseline::line, Baseline::ring};
std::string_view name_of(Baseline);

/// Predicted milliseconds of the rows after family.calibration.
/// - Proportional: proportional to samples, from the smallest system.
/// - Line: c0 + c1 samples.
/// - Ring: c0 + c1 samples + k 2 (n - 1) / n, where c0 is 4.9 % of the smallest system's step.
/// Coefficients minimize the squared relative errors of the calibration rows. A c0 or k is 0 if it would be negative or
/// would make c1 negative.
std::vector<double> predict(const ScalingFamily&, Baseline);

}  // namespace trireme
