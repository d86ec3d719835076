// CUDA graphs: work that is noted by capturing a stream.
#pragma once
#include <memory>

#include "kernels/core/runtime.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/graph_memory.h"

namespace trireme::gpu {

/// memory must outlive it, and its blocks be released by way of the runtime.
std::unique_ptr<DeviceGraph> make_graph(Device, GraphMemory& memory);

/// Notes second() beside first() (Runtime::beside). Returns the blocks that they gave back, with their sizes.
std::vector<std::pair<void*, std::size_t>> note_beside(Capture&, const std::function<void()>& first,
                                                       const std::function<void()>& second);

}  // namespace trireme::gpu
