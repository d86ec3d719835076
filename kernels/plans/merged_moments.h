// MergedMoments: mean and squared deviations of sets of rows, one set after another (Chan, Golub & LeVeque 1979). The
// formula that every backend's BatchNormMerge is made of.
#pragma once

namespace trireme {

struct MergedMoments {
  double count = 0, mean = 0, m2 = 0;  ///< of all rows so far; m2: sum of squared deviations from mean
  /// Adds a set of rows; of a set without rows nothing but its count is read.
  constexpr void add(double rows, double their_mean, double their_m2) {
    if (rows == 0) return;
    const double all = count + rows, delta = their_mean - mean, share = rows / all;
    mean += delta * share;
    m2 += their_m2 + delta * delta * count * share;
    count = all;
  }
};

}  // namespace trireme
