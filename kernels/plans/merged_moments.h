// MergedMoments: mean and sum of squared deviations of several sets of rows, merged one after another (Chan, Golub &
// LeVeque 1979). Every backend's BatchNormMerge uses it.
#pragma once

namespace trireme {

struct MergedMoments {
  double count = 0, mean = 0, m2 = 0;  ///< of all rows so far; m2: sum of squared deviations from mean
  /// Adds a set of rows. Mean and m2 of an empty set are not read.
  constexpr void add(double rows, double their_mean, double their_m2) {
    if (rows == 0) return;
    const double all = count + rows, delta = their_mean - mean, share = rows / all;
    mean += delta * share;
    m2 += their_m2 + delta * delta * count * share;
    count = all;
  }
};

}  // namespace trireme
