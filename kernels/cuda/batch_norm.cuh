// What forward and backward of batch norm share.
#pragma once
#include <cmath>

#include "kernels/contracts/norm.h"
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/typed.h"
#include "kernels/plans/norm_checks.h"

namespace trireme::gpu {

/// The norm of one number. Backward finds the sign of the output by the same arithmetic: the product and the sum are
/// rounded once, in every kernel.
template <class A>
__device__ A affine(A x, A center, A scale, A shift) {
  return std::fma(x - center, scale, shift);
}

/// Per channel.
template <class A>
struct Weights {
  const A *mean, *rstd, *gamma, *beta;  ///< beta may be null
};
template <class A>
struct TypedWeights {
  Typed<A> mean, rstd, gamma, beta;

  operator Weights<A>() const { return {mean.data(), rstd.data(), gamma.data(), beta.data()}; }
};
/// What affine() needs of n channels.
template <class A, int n>
struct Affine {
  A center[n], scale[n], shift[n];

  __device__ Affine(const Weights<A>& w, Index column) {
#pragma unroll
    for (int i = 0; i < n; ++i) {
      center[i] = w.mean[column + i];
      scale[i] = w.rstd[column + i] * w.gamma[column + i];
      shift[i] = w.beta ? w.beta[column + i] : A(0);
    }
  }
  __device__ A operator()(A x, int i) const { return affine(x, center[i], scale[i], shift[i]); }
};

}  // namespace trireme::gpu
