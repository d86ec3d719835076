// Silent corruption: weights that several ranks have alike are compared, bit by bit (Dixit et al., "Silent Data
// Corruptions at Scale", 2021, is about machines in which that goes wrong).
#pragma once
#include "parallel/comm/world/world.h"
#include "parallel/runtime/step.h"

namespace trireme {

/// CRC-32 of the weights that this rank holds between steps.
std::uint32_t digest(Step&);
/// After step `number`, for steps after which ranks that hold the same weights and running statistics have the same
/// bits of them. Each tensor is compared among the ranks that hold the same part of it. Throws Error on all ranks that
/// names the tensor, and the ranks whose bits are not those of most, or all where there is no majority. A collective
/// call.
void compare_replicas(Step&, World&, std::int64_t number);

}  // namespace trireme
