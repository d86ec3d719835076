// Crops of volumes, as samples for training: which box a sample is, and how a box becomes a sample.
#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "datasets/volumes/voxel_type.h"
#include "framework/tensor/box.h"
#include "framework/tensor/tensor.h"

namespace trireme {

/// [1, h, w] of [h, w]; [d, h, w] stays. Throws Error, beginning with op, for other numbers of axes, extents below 1,
/// and a crop that is larger than the volume [D, H, W].
Shape crop_extents(std::string_view op, const Shape& crop, const Shape& volume);
/// Four numbers of the 64 bits that sample `id` of an epoch draws for its place.
std::array<std::uint64_t, 4> crop_bits(std::uint64_t seed, Index epoch, Index id);
/// A box of `crop` in [D, H, W], each place as likely as the others, from three such numbers.
Box random_box(std::span<const std::uint64_t, 3> bits, const Shape& volume, const Shape& crop);
/// A number in [0, below) of 64 bits.
Index below(std::uint64_t bits, Index below);

/// How voxels become the numbers that a model sees: (voxel - mean) / std.
struct VoxelScale {
  double mean = 0;
  double std = 1;                                 ///< not 0
  Tensor operator()(const Tensor& voxels) const;  ///< f32
};
/// mean and std as they are given; std 0: the largest value of integers of 8 and 16 bits, and 1 for floats and truth
/// values. Throws Error for numbers that are not finite, and for wider integers without a std: their largest value
/// would make all usual voxels 0.
VoxelScale voxel_scale(const VoxelType&, double mean, double std);

}  // namespace trireme
