#include "datasets/volumes/crops.h"

#include <cmath>

#include "datasets/core/random_stream.h"
#include "framework/autograd/tape.h"
#include "framework/ops/ops.h"

namespace trireme {

Shape crop_extents(std::string_view op, const Shape& crop, const Shape& volume) {
  check(crop.rank() == 2 || crop.rank() == 3, op, "crops of {}, expected [h, w] or [d, h, w]", crop);
  const Shape all = crop.rank() == 3 ? crop : Shape{1, crop[0], crop[1]};
  for (int i = 0; i < 3; ++i)
    check(all[i] >= 1 && all[i] <= volume[i], op, "crops of {} do not fit in a volume of {}: ask for smaller ones",
          crop, volume);
  return all;
}

std::array<std::uint64_t, 4> crop_bits(std::uint64_t seed, Index epoch, Index id) {
  const Philox random = random_stream(seed, RandomStream::volume_crop, epoch);
  std::array<std::uint64_t, 4> bits{};
  for (std::size_t i = 0; i < 4; i += 2) {
    const auto words = random(i / 2, static_cast<std::uint64_t>(id));
    bits[i] = std::uint64_t{words[1]} << 32 | words[0];
    bits[i + 1] = std::uint64_t{words[3]} << 32 | words[2];
  }
  return bits;
}

Index below(std::uint64_t bits, Index below) {
  return static_cast<Index>(static_cast<unsigned __int128>(bits) * static_cast<std::uint64_t>(below) >> 64);
}

Box random_box(std::span<const std::uint64_t, 3> bits, const Shape& volume, const Shape& crop) {
  Box box{crop, crop};
  for (int i = 0; i < 3; ++i) box.at[i] = below(bits[static_cast<std::size_t>(i)], volume[i] - crop[i] + 1);
  return box;
}

Tensor VoxelScale::operator()(const Tensor& voxels) const {
  const NoGrad off;
  const Tensor floats = voxels.to(DType::f32);
  return mean == 0 && std == 1 ? floats : (floats - mean) * (1 / std);
}

VoxelScale voxel_scale(const VoxelType& type, double mean, double std) {
  check(std::isfinite(mean) && std::isfinite(std), ErrorKind::data, "volumes",
        "voxels are scaled by a mean of {} and a std of {}", mean, std);
  if (std == 0) {
    const bool is_signed = type.code[0] == 'i';
    check(!type.is_integer() || type.size <= 2, "volumes",
          "voxels are {} and no std is given, which is known of integers of 8 and 16 bits alone; give one (--data.std, "
          "of "
          "infer --std), such as 32767 to scale them as int16",
          type.name);
    std = type.is_integer() && type.code[0] != 'b' ? std::exp2(8 * type.size - (is_signed ? 1 : 0)) - 1 : 1;
  }
  return {mean, std};
}

}  // namespace trireme
