// InferenceSubject: the volume that `trireme infer` reads, and the model for its extents.
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
  Shape whole,  ///< the volume, [1, spatial..., C]
      result,   ///< the same cells, with the net's channels
      before;   ///< cells of padding in front of the volume; the net's input has the rest behind
  std::shared_ptr<const VolumeNet> net;  ///< over the padded volume; shared by all ranks of a process
  VoxelScale scale;                      ///< applied to voxels before the net
  std::uint32_t weights = 0;             ///< CRC-32 of the file
};
/// Fills options that the command leaves open from the run directory. Throws Error if the run has no checkpoint.
void complete_from_run(InferCommand&);
/// Throws Error for weights of another model, and for volumes that the model does not accept.
InferenceSubject inference_subject(const InferCommand&);
/// Measured operations per second of the model on this thread's cores, over a part of the volume (inference_time.h).
double measured_operations(const InferenceSubject&, const InferCommand&);
/// Parses "16,64,64": at most `most` numbers of at least 1. Throws OptionError for other text.
std::vector<Index> numbers_of(const std::string& option, const std::string& text, std::size_t most);

}  // namespace trireme
