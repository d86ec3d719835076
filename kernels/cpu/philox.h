// Philox for vector code: many counters per call.
#pragma once
#include "kernels/core/random.h"
#include "kernels/core/view.h"

namespace trireme {

/// out[4 i + j] = Philox{key}(high, low + i)[j] for i in [0, n), with the widest vectors of the CPU.
void philox_fill(std::uint32_t* out, std::uint64_t key, std::uint64_t high, std::uint64_t low, Index n);

}  // namespace trireme
