// Ids of rows that a kernel reads. An id that is no row sets a fault; the host gets the first one.
#pragma once
#include "kernels/cuda/launch.cuh"

namespace trireme::gpu {

struct Ids {
  const Index* id;
  Index rows;  ///< ids lie in [0, rows)
  Fault* fault;

  /// -1: there is no such row.
  __device__ Index of(Index i) const {
    const Index at = id[i];
    if (at >= 0 && at < rows) return at;
    if (atomicCAS(&fault->set, 0, 2) == 0) {
      fault->row = i;
      fault->label = at;
      fault->classes = rows;
    }
    return -1;
  }
};

}  // namespace trireme::gpu
