// A model of a training step's time t (ms) by samples b per accelerator and size n (nodes), for few measurements:
//
//   t = c (b + a + k 2 (n - 1) / n + l latency(n)) exp(w(n) + v(b) + e)
//
// c, milliseconds per sample, is free. What does not grow with the samples is counted in samples, so that families of
// fast and slow accelerators have it in common: a, the fixed part (launches, update); k, gradient bytes over bandwidth
// of a ring all-reduce; l, its latency: latency(n) is 2 (n - 1) messages of a ring, or log2 n of a tree, or 0 (Thakur,
// Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, 2005). Their logarithms are
// normally distributed over families. What the formula does not know, such as settings that change between systems, is
// a walk w over log2 n and v over log2 b, with variogram s^2 |distance|^smoothness (Cressie, Statistics for spatial
// data, 1993: kriging), and e, the run to run spread. All three scale with one unknown factor per family, which makes
// their sum multivariate t with `tail` degrees of freedom: a family that fits badly tells less of the others, and gets
// wider bands.
#pragma once
#include <array>
#include <span>
#include <vector>

#include "tools/backtest/scaling_table.h"

namespace trireme {

enum class Latency { none, ring, tree };

/// A form of the model.
struct ScalingForm {
  Latency latency = Latency::ring;
  double smoothness = 1;  ///< of the walks: 1 Brownian, towards 2 smoother
  int tail = 1;           ///< degrees of freedom; 1: families that fit badly are common
};
/// The forms that predictions are made of: three latencies, two smoothnesses. All weigh the same, as no family's data
/// choose among them: estimated weights of forecasts that differ little do worse (Claeskens, Magnus, Vasnev and Wang,
/// The forecast combination puzzle, 2016).
std::vector<ScalingForm> scaling_forms();

/// What families have in common, as logarithms: means of a, k and l, which fit_prior() learns, their standard
/// deviations, which it does not (software differs by a factor of 1.7, networks and their latency by 2.7), s over log2
/// n, s over log2 b.
struct ScalingPrior {
  std::array<double, 3> mean = {3.0, 1.8, -4.2};
  std::array<double, 3> deviation = {0.5, 1, 1};
  double over_size = -4.2, over_samples = -4.2;
};

/// A form, and the prior that was learnt for it.
struct ScalingMember {
  ScalingForm form;
  ScalingPrior prior;
};

/// A predicted step, milliseconds.
struct ScalingPrediction {
  double milliseconds = 0, low = 0, high = 0;  ///< median, and the band: its 10 % and 90 % quantiles
};

/// Where fit_prior() begins.
ScalingPrior start_of(const ScalingForm&);
/// Log density of a family's measured ratios to its first row.
double log_density(const ScalingFamily&, const ScalingForm&, const ScalingPrior&);

/// The prior that makes these families likeliest, under a weak prior of its own around start_of(form) (a factor of
/// 4.5 for a, k, l; of 2.7 for s). Compass search (Hooke and Jeeves, Direct search solution, 1961), always from
/// start_of(form), so that nothing but the families bears on it.
ScalingPrior fit_prior(std::span<const ScalingFamily* const>, const ScalingForm&);

/// The rows behind family.calibration, whose times are not read, by those before: quantiles of the members' mixture.
std::vector<ScalingPrediction> predict(const ScalingFamily&, std::span<const ScalingMember>);

}  // namespace trireme
