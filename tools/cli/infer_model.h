// What `trireme infer` computes: a volume, and the model that weights are of over its extents.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "datasets/volumes/crops.h"
#include "datasets/volumes/volume.h"
#include "parallel/inference/volume_net.h"
#include "tools/cli/commands.h"

namespace trireme {

struct InferenceSubject {
  Volume volume;
  Shape whole;                           ///< [1, spatial..., C], as the net sees the volume
  std::shared_ptr<const VolumeNet> net;  ///< all ranks of a process share it
  VoxelScale scale;                      ///< of voxels, before the net sees them
  std::uint32_t weights = 0;             ///< CRC-32 of the file
};
/// What a run directory says, where the command leaves it open. Throws Error for one without a checkpoint.
void complete_from_run(InferCommand&);
/// Throws Error for weights of another model, and for volumes that it does not take.
InferenceSubject inference_subject(const InferCommand&);
/// Operations per second of this thread's cores, of the model over a part of the volume's extents (inference_time.h).
double measured_operations(const InferenceSubject&, const InferCommand&);
/// The numbers in "16,64,64", at most so many, from 1 on. Throws OptionError for another text.
std::vector<Index> numbers_of(const std::string& option, const std::string& text, std::size_t most);

}  // namespace trireme
