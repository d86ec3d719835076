// Running a plan of the emulated cuDNN.
#pragma once
#include "tests/cuda_emulator/cudnn_node.h"

namespace emulator::dnn {

/// Checks the pointers of the pack, and puts the plan's operations on the stream.
void execute(const Node& plan, const Node& pack, cudaStream_t stream);

}  // namespace emulator::dnn
