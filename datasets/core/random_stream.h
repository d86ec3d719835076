// The random streams of the input pipeline: one list, so that no two of them are equal.
#pragma once
#include <cstdint>

#include "kernels/core/random.h"

namespace trireme {

/// What the numbers are for. A stream's number is part of every result that was ever drawn from it, so it never
/// changes.
enum class RandomStream : std::uint64_t {
  shuffle = 0x0de2,       ///< order of the samples of an epoch
  shift_flip = 0xa06,     ///< Augment::shift and flip, by sample
  resized_crop = 0xc409,  ///< random resized crops of decoded images, by sample
  packed_crop = 0x9acc,   ///< random crops of packed images, by sample
  transform = 0x7a5f,     ///< TransformRandom, by sample, place of the transform and draw
  weighted = 0x3e19,      ///< weighted_sampler(), by place in the epoch
  text_window = 0x7e47,   ///< where random windows of a text begin, by sample
  phantom = 0xe111,       ///< ellipsoids of a Phantom, by their number
  voxel_noise = 0x0153,   ///< noise of a Phantom, by voxel
  volume_crop = 0xc40b,   ///< where crops of volumes lie, by sample
};

/// The generator of a stream in an epoch; its counter is the sample's or the draw's number.
inline Philox random_stream(std::uint64_t seed, RandomStream stream, std::int64_t epoch) {
  return Philox{mix(mix(seed, static_cast<std::uint64_t>(stream)), static_cast<std::uint64_t>(epoch))};
}

}  // namespace trireme
