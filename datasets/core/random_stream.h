// RandomStream: all random streams of the input pipeline, in one list so that their numbers differ.
#pragma once
#include <cstdint>

#include "kernels/core/random.h"

namespace trireme {

/// The use of a random stream. A stream's number determines all numbers drawn from it, so it must never change.
enum class RandomStream : std::uint64_t {
  shuffle = 0x0de2,       ///< order of the samples of an epoch
  shift_flip = 0xa06,     ///< Augment::shift and flip, by sample
  resized_crop = 0xc409,  ///< random resized crops of decoded images, by sample
  packed_crop = 0x9acc,   ///< random crops of packed images, by sample
  transform = 0x7a5f,     ///< TransformRandom, by sample, position of the transform and draw
  weighted = 0x3e19,      ///< weighted_sampler(), by position in the epoch
  text_window = 0x7e47,   ///< positions of random windows of a text, by sample
  phantom = 0xe111,       ///< ellipsoids of a Phantom, by their number
  voxel_noise = 0x0153,   ///< noise of a Phantom, by voxel
  volume_crop = 0xc40b,   ///< positions of crops of volumes, by sample
};

/// The generator of a stream in an epoch; its counter is the number of the sample or the draw.
inline Philox random_stream(std::uint64_t seed, RandomStream stream, std::int64_t epoch) {
  return Philox{mix(mix(seed, static_cast<std::uint64_t>(stream)), static_cast<std::uint64_t>(epoch))};
}

}  // namespace trireme
