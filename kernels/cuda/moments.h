// Means and squared deviations of columns, for batch norm and for convolutions followed by it.
#pragma once
#include "kernels/cuda/device.h"

namespace trireme::gpu {

/// mean [C] and m2 [C] of x [..., C], as kernel::BatchNormMoments.
void moments(const On&, const View& mean, const View& m2, const View& x);
/// As above, from sums [C] and sums of squares [C] over `rows` rows.
void moments_of_sums(const On&, const View& mean, const View& m2, const float* sums, const float* squares, Index rows);

}  // namespace trireme::gpu
