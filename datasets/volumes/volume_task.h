// VolumeTask: the task of a model for volumes.
#pragma once
#include <cstdint>

namespace trireme {

/// What a model computes from a volume.
enum class VolumeTask : std::uint8_t {
  segment,  ///< a label per voxel: y i64 [h, w] or [d, h, w]
  denoise,  ///< the clean volume: y f32 [h, w, C] or [d, h, w, C]
};

}  // namespace trireme
