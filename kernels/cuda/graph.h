// CUDA graphs: device work recorded by stream capture.
#pragma once
#include <memory>

#include "kernels/core/runtime.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/graph_memory.h"

namespace trireme::gpu {

/// memory must outlive the graph. The graph's blocks are released through the runtime.
std::unique_ptr<DeviceGraph> make_graph(Device, GraphMemory& memory);

/// Captures first() and second() as concurrent branches (Runtime::fork_join). Returns the blocks that they released,
/// with their sizes.
std::vector<std::pair<void*, std::size_t>> capture_fork_join(Capture&, const std::function<void()>& first,
                                                             const std::function<void()>& second);

}  // namespace trireme::gpu
