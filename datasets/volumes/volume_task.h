// What a model is to make of volumes.
#pragma once
#include <cstdint>

namespace trireme {

/// What a model is to make of a volume.
enum class VolumeTask : std::uint8_t {
  segment,  ///< a label per voxel: y i64 [h, w] or [d, h, w]
  denoise,  ///< the volume as it should be: y f32 [h, w, C] or [d, h, w, C]
};

}  // namespace trireme
