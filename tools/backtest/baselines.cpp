#include "tools/backtest/baselines.h"

#include <span>

namespace trireme {
namespace {

constexpr double ring_fixed_share = 0.049;  ///< of the smallest system's step

double second_term(const ScalingRow& r, Baseline kind) {
  return kind == Baseline::line ? 1 : kind == Baseline::ring ? 2 * (r.size - 1.0) / r.size : 0;
}

}  // namespace

std::string_view name_of(Baseline b) {
  return b == Baseline::proportional ? "proportional" : b == Baseline::line ? "line" : "ring over nodes";
}

std::vector<double> predict(const ScalingFamily& family, Baseline kind) {
  const std::span<const ScalingRow> rows(family.rows);
  const auto known = rows.first(kind == Baseline::proportional ? 1 : static_cast<std::size_t>(family.calibration));
  const double fixed = kind == Baseline::ring ? ring_fixed_share * rows[0].milliseconds : 0;
  // Normal equations of (samples, second term) / milliseconds against (milliseconds - fixed) / milliseconds.
  double bb = 0, bs = 0, ss = 0, by = 0, sy = 0;
  for (const ScalingRow& r : known) {
    const double b = r.samples / r.milliseconds, s = second_term(r, kind) / r.milliseconds,
                 y = 1 - fixed / r.milliseconds;
    bb += b * b;
    bs += b * s;
    ss += s * s;
    by += b * y;
    sy += s * y;
  }
  const double determinant = bb * ss - bs * bs;
  const bool solvable = determinant > 1e-12 * bb * ss;
  double slope = solvable ? (by * ss - sy * bs) / determinant : 0,
         second = solvable ? (sy * bb - by * bs) / determinant : 0;
  if (slope <= 0 || second < 0) {
    slope = by / bb;
    second = 0;
  }
  std::vector<double> all;
  for (const ScalingRow& r : rows.subspan(static_cast<std::size_t>(family.calibration)))
    all.push_back(fixed + slope * r.samples + second * second_term(r, kind));
  return all;
}

}  // namespace trireme
