// A model of a training step's time t (ms) by samples b per accelerator and size n (nodes), for few measurements:
//
//   t = c (b + a + k 2 (n - 1) / n + l latency(n)) exp(w(n) + v(b) + e)
//
// c, in milliseconds per sample, is free for each family. The other terms are counted in samples, so that families of
// fast and slow accelerators share them:
// - a is the fixed part (launches, update);
// - k is gradient bytes over bandwidth in a ring all-reduce;
// - l is its latency. latency(n) is 2 (n - 1) messages of a ring, or log2 n of a tree, or 0 (Thakur, Rabenseifner and
//   Gropp, Optimization of collective communication operations in MPICH, 2005).
// The logarithms of a, k and l are normally distributed over families. Unmodelled effects, such as settings that differ
// between systems, are random walks: w over log2 n and v over log2 b, with variogram s^2 |distance|^smoothness
// (Cressie, Statistics for spatial data, 1993: kriging). e is the run-to-run variation. All three scale with one
// unknown factor per family. Their sum is therefore multivariate t with `tail` degrees of freedom: a family that fits
// badly has less influence on the priors, and gets wider bands.
#pragma once
#include <array>
#include <span>
#include <vector>

#include "tools/backtest/scaling_table.h"

namespace trireme {

enum class Latency { none, ring, tree };

/// One variant of the model.
struct ScalingForm {
  Latency latency = Latency::ring;
  double smoothness = 1;  ///< of the walks: 1 is Brownian; values towards 2 are smoother
  int tail = 1;           ///< degrees of freedom; 1 assumes that families that fit badly are common
};
/// The variants that a prediction averages: three latencies times two values of smoothness, with equal weights.
/// Estimated weights do worse for forecasts that differ little (Claeskens, Magnus, Vasnev and Wang, The forecast
/// combination puzzle, 2016).
std::vector<ScalingForm> scaling_forms();

/// What families have in common, as logarithms. fit_prior() learns the means of a, k and l, and s over log2 n and log2
/// b. The standard deviations are fixed: software differs by a factor of 1.7, networks and their latency by 2.7.
struct ScalingPrior {
  std::array<double, 3> mean = {3.0, 1.8, -4.2};
  std::array<double, 3> deviation = {0.5, 1, 1};
  double over_size = -4.2, over_samples = -4.2;
};

/// A variant with the prior that was learnt for it.
struct ScalingMember {
  ScalingForm form;
  ScalingPrior prior;
};

/// Predicted time of a step in milliseconds.
struct ScalingPrediction {
  double milliseconds = 0, low = 0, high = 0;  ///< median, and the band: its 10 % and 90 % quantiles
};

/// Start of fit_prior().
ScalingPrior start_of(const ScalingForm&);
/// Log density of a family's measured ratios to its first row.
double log_density(const ScalingFamily&, const ScalingForm&, const ScalingPrior&);

/// The prior of maximum likelihood for these families. A weak hyper-prior is centred on start_of(form), with a standard
/// deviation of a factor of 4.5 for a, k and l, and of 2.7 for s. Compass search (Hooke and Jeeves, Direct search
/// solution, 1961) always starts at start_of(form), so the result depends on the families alone.
ScalingPrior fit_prior(std::span<const ScalingFamily* const>, const ScalingForm&);

/// Predicts the rows after family.calibration from the calibration rows: quantiles of the mixture of members. The times
/// of predicted rows are not read.
std::vector<ScalingPrediction> predict(const ScalingFamily&, std::span<const ScalingMember>);

}  // namespace trireme
