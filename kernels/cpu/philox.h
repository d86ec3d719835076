// Philox for vector code: many counters at once, and the threshold form of dropout's comparison.
#pragma once
#include <cmath>

#include "kernels/random.h"
#include "kernels/view.h"

namespace trireme {

/// uniform_float(bits) >= p exactly when bits >> 8 >= drop_threshold(p).
inline std::uint32_t drop_threshold(double p) { return static_cast<std::uint32_t>(std::ceil(p * 0x1p24)); }

/// out[4 i + j] = Philox{key}(high, low + i)[j] for i in [0, n). Plain code: call it inside vectorised().
inline void philox_fill(std::uint32_t* out, std::uint64_t key, std::uint64_t high, std::uint64_t low, Index n) {
#pragma omp simd
  for (Index i = 0; i < n; ++i) {
    auto block = Philox{key}(high, low + static_cast<std::uint64_t>(i));
    for (int j = 0; j < 4; ++j) out[4 * i + j] = block[j];
  }
}

}  // namespace trireme
