// Philox for vector code: many counters at once, and the threshold form of dropout's comparison.
#pragma once
#include <cmath>

#include "kernels/random.h"
#include "kernels/view.h"

namespace trireme {

/// uniform_float(bits) >= p exactly when bits >> 8 >= drop_threshold(p).
inline std::uint32_t drop_threshold(double p) { return static_cast<std::uint32_t>(std::ceil(p * 0x1p24)); }

/// out[4 i + j] = Philox{key}(high, low + i)[j] for i in [0, n), with the widest vectors at hand.
void philox_fill(std::uint32_t* out, std::uint64_t key, std::uint64_t high, std::uint64_t low, Index n);

}  // namespace trireme
