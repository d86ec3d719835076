// convert_block(): arithmetic on rare types such as short integers needs no separate loops for each type. A kernel
// converts a block that fits the first cache to a wider type, computes there, and converts the result back.
#pragma once
#include "kernels/cpu/vector.h"

namespace trireme::detail {

constexpr Index block_size = 512;  ///< numbers of a block

template <class T, class S>
void convert_loop(T* to, const S* from, Index n) {
#pragma omp simd
  for (Index i = 0; i < n; ++i) to[i] = element<T>(from[i]);
}
/// to = from, converted (element()).
template <class T, class S>
void convert_block(T* to, const S* from, Index n) {
  vectorised_loop<convert_loop<T, S>>()(to, from, n);
}

}  // namespace trireme::detail
