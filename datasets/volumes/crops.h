// Crops of volumes as training samples: choice of the box, and scaling of its voxels.
#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "datasets/volumes/voxel_type.h"
#include "framework/tensor/box.h"
#include "framework/tensor/tensor.h"

namespace trireme {

/// [1, h, w] for a crop [h, w]; [d, h, w] is unchanged. Throws Error of op for another number of axes, extents below 1,
/// and a crop that is larger than the volume [D, H, W].
Shape crop_extents(std::string_view op, const Shape& crop, const Shape& volume);
/// Four random 64-bit numbers for the position of sample `id` in an epoch.
std::array<std::uint64_t, 4> crop_bits(std::uint64_t seed, Index epoch, Index id);
/// A box of extents `crop` in [D, H, W] at a uniformly random position, from three such numbers.
Box random_box(std::span<const std::uint64_t, 3> bits, const Shape& volume, const Shape& crop);
/// A number in [0, below) from 64 random bits.
Index below(std::uint64_t bits, Index below);

/// Normalisation of voxels for a model: (voxel - mean) / std.
struct VoxelScale {
  double mean = 0;                                ///< in units of voxels
  double std = 1;                                 ///< not 0
  Tensor operator()(const Tensor& voxels) const;  ///< normalised voxels, f32
};
/// The scale with these numbers. std 0: the largest value of 8- and 16-bit integers, and 1 for floats and bool. Throws
/// Error for numbers that are not finite, and for std 0 with wider integers, whose largest value would scale usual
/// voxels to 0.
VoxelScale voxel_scale(const VoxelType&, double mean, double std);

}  // namespace trireme
