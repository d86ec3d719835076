// Detection of silent data corruption: compares weights that several ranks hold in common, bit by bit (Dixit et al.,
// "Silent Data Corruptions at Scale", 2021, describes such faults).
#pragma once
#include "parallel/comm/world/world.h"
#include "parallel/runtime/step.h"

namespace trireme {

/// CRC-32 of the weights that this rank holds between steps.
std::uint32_t digest(Step&);
/// Compares each tensor among the ranks that hold the same part of it. Call after step `number` if equal weights and
/// running statistics must then have equal bits. Throws Error on all ranks with the tensor and the ranks that differ
/// from the majority, or all ranks without a majority. A collective call.
void compare_replicas(Step&, World&, std::int64_t number);

}  // namespace trireme
