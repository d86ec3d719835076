// Group norm: one block of threads per group of a sample. Sums over channels use blocks that process 32 channels at a
// time.
#include <cmath>

#include "kernels/contracts/norm.h"
#include "kernels/core/kernel.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/plans/norm_checks.h"

namespace trireme::gpu {
namespace {

/// The elements of group g of a sample, of which this thread has every blockDim.x-th.
template <class F>
__device__ void each_of_group(const GroupShape& s, Index sample, Index g, F f) {
  const Index n = s.cells * s.per_group(), first = sample * s.cells * s.channels + g * s.per_group();
  for (Index i = threadIdx.x; i < n; i += blockDim.x) {
    const Index cell = i / s.per_group(), c = i - cell * s.per_group();
    f(first + cell * s.channels + c, g * s.per_group() + c);
  }
}

template <class T, class A>
__global__ void normalise(T* y, A* mean, A* rstd, const T* x, const A* gamma, const A* beta, GroupShape s, A eps) {
  const Index sample = blockIdx.x / s.groups, g = blockIdx.x % s.groups;
  const auto count = static_cast<A>(s.cells * s.per_group());
  A sum = 0;
  each_of_group(s, sample, g, [&](Index at, Index) { sum += wide(x[at]); });
  const A about = block_sum(sum) / count;
  A rest = 0, squares = 0;
  each_of_group(s, sample, g, [&](Index at, Index) {
    const A d = wide(x[at]) - about;
    rest += d;
    squares += d * d;
  });
  rest = block_sum(rest);
  squares = block_sum(squares);
  const A shift = rest / count, variance = (squares - rest * shift) / count;
  const A center = about + shift, factor = A(1) / std::sqrt(variance + eps);
  if (threadIdx.x == 0) {
    mean[blockIdx.x] = center;
    rstd[blockIdx.x] = factor;
  }
  each_of_group(s, sample, g, [&](Index at, Index c) {
    A v = (wide(x[at]) - center) * factor;
    if (gamma) v *= gamma[c];
    if (beta) v += beta[c];
    y[at] = rounded<T>(v);
  });
}

void group_norm(View y, View mean, View rstd, View x, View gamma, View beta, double eps) {
  constexpr auto op = kernel::GroupNorm::name;
  check_same(y, x, op);
  const GroupShape s = check_groups({&mean, &rstd}, {}, {&gamma, &beta}, x, op);
  if (x.numel() == 0) return;
  const On on(x.device, op);
  dispatch_device_float(x.dtype, op, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    run(on, dim3(static_cast<unsigned>(s.samples * s.groups)), block, normalise<T, A>, y.as<T>(), mean.as<A>(),
        rstd.as<A>(), x.as<const T>(), gamma.as<const A>(), beta.as<const A>(), s, static_cast<A>(eps));
  });
}

/// A warp's lanes are channels; its warps share the cells.
template <class T, class A>
__global__ void sum_cells(A* plain, A* weighted, const T* dy, const T* x, const A* mean, const A* rstd, GroupShape s) {
  __shared__ A sums[2][block];
  const Index chunks = (s.channels + warp - 1) / warp, sample = blockIdx.x / chunks;
  const Index c = blockIdx.x % chunks * warp + threadIdx.x % warp;
  A sum = 0, with_xhat = 0;
  if (c < s.channels) {
    const Index g = sample * s.groups + c / s.per_group();
    const A center = mean[g], factor = rstd[g];
    for (Index cell = threadIdx.x / warp; cell < s.cells; cell += block / warp) {
      const Index at = (sample * s.cells + cell) * s.channels + c;
      const A v = wide(dy[at]);
      sum += v;
      with_xhat += v * (wide(x[at]) - center) * factor;
    }
  }
  sums[0][threadIdx.x] = sum;
  sums[1][threadIdx.x] = with_xhat;
  __syncthreads();
  if (threadIdx.x >= warp || c >= s.channels) return;
  for (int k = warp; k < block; k += warp) {
    sum += sums[0][threadIdx.x + k];
    with_xhat += sums[1][threadIdx.x + k];
  }
  plain[sample * s.channels + c] = sum;
  weighted[sample * s.channels + c] = with_xhat;
}

template <class T, class A>
__global__ void gradient(T* dx, const T* dy, const T* x, const A* mean, const A* rstd, const A* gamma, const A* plain,
                         const A* weighted, GroupShape s) {
  const Index sample = blockIdx.x / s.groups, g = blockIdx.x % s.groups;
  A sum = 0, with_xhat = 0;
  for (Index k = threadIdx.x; k < s.per_group(); k += blockDim.x) {
    const Index c = g * s.per_group() + k;
    const A by = gamma ? gamma[c] : A(1);
    sum += by * plain[sample * s.channels + c];
    with_xhat += by * weighted[sample * s.channels + c];
  }
  const auto count = static_cast<A>(s.cells * s.per_group());
  const A center = mean[blockIdx.x], factor = rstd[blockIdx.x];
  sum = block_sum(sum) / count;
  with_xhat = block_sum(with_xhat) * (factor / count);
  each_of_group(s, sample, g, [&](Index at, Index c) {
    const A v = gamma ? wide(dy[at]) * gamma[c] : wide(dy[at]);
    dx[at] = rounded<T>(factor * (v - sum - (wide(x[at]) - center) * with_xhat));
  });
}

void backward(View sum_dy, View sum_dy_xhat, View dx, View dy, View x, View mean, View rstd, View gamma) {
  constexpr auto op = kernel::GroupNormBackward::name;
  check_same(dy, x, op);
  if (dx) check_same(dx, x, op);
  const GroupShape s = check_groups({&mean, &rstd}, {&sum_dy, &sum_dy_xhat}, {&gamma}, x, op);
  if (s.samples * s.channels == 0) return;
  const On on(dy.device, op);
  dispatch_device_float(x.dtype, op, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    run(on, dim3(static_cast<unsigned>(s.samples * ceil_div(s.channels, warp))), block, sum_cells<T, A>, sum_dy.as<A>(),
        sum_dy_xhat.as<A>(), dy.as<const T>(), x.as<const T>(), mean.as<const A>(), rstd.as<const A>(), s);
    if (dx && x.numel() > 0)
      run(on, dim3(static_cast<unsigned>(s.samples * s.groups)), block, gradient<T, A>, dx.as<T>(), dy.as<const T>(),
          x.as<const T>(), mean.as<const A>(), rstd.as<const A>(), gamma.as<const A>(), sum_dy.as<const A>(),
          sum_dy_xhat.as<const A>(), s);
  });
}

const Kernel<kernel::GroupNorm> group_norm_cuda{DeviceKind::cuda, group_norm};
const Kernel<kernel::GroupNormBackward> backward_cuda{DeviceKind::cuda, backward};

}  // namespace
}  // namespace trireme::gpu
