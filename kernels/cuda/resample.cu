// Resample: a thread to an element, which adds up its taps.
#include "kernels/core/kernel.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/plans/resample_taps.h"

namespace trireme::gpu {
namespace {

/// Element i of [N, extents..., C] as its place along each axis.
struct ElementPlace {
  Index n, at[3], channel;
  __device__ ElementPlace(Index i, const Index (&extent)[3], Index channels) {
    channel = i % channels;
    i /= channels;
    for (int d = 2; d >= 0; --d) {
      at[d] = i % extent[d];
      i /= extent[d];
    }
    n = i;
  }
};

template <class T>
struct Resample {
  using A = Accumulator<T>;
  T* y;
  const T* x;
  ResampleAxis axis[3];
  Index channels;

  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    const Index extent[3] = {axis[0].out, axis[1].out, axis[2].out};
    const ElementPlace p(i, extent, channels);
    const ResampleTaps a = resample_taps(axis[0], p.at[0]), b = resample_taps(axis[1], p.at[1]),
                       c = resample_taps(axis[2], p.at[2]);
    A sum = 0;
    for (Index u = a.first; u < a.first + a.count; ++u)
      for (Index v = b.first; v < b.first + b.count; ++v)
        for (Index w = c.first; w < c.first + c.count; ++w) {
          const Index cell = ((p.n * axis[0].in + u) * axis[1].in + v) * axis[2].in + w;
          sum += static_cast<A>(a.share_of(u) * b.share_of(v) * c.share_of(w)) * wide(x[cell * channels + p.channel]);
        }
    y[i] = rounded<T>(sum);
  }
};

template <class T>
struct ResampleBackward {
  using A = Accumulator<T>;
  T* dx;
  const T* dy;
  ResampleAxis axis[3];
  Index channels;

  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    const Index extent[3] = {axis[0].in, axis[1].in, axis[2].in};
    const ElementPlace p(i, extent, channels);
    A sum = 0;
    for (Index u = first_resampled(axis[0], p.at[0]); u < last_resampled(axis[0], p.at[0]); ++u) {
      const double a = resample_taps(axis[0], u).share_of(p.at[0]);
      if (a == 0) continue;
      for (Index v = first_resampled(axis[1], p.at[1]); v < last_resampled(axis[1], p.at[1]); ++v) {
        const double b = a * resample_taps(axis[1], v).share_of(p.at[1]);
        if (b == 0) continue;
        for (Index w = first_resampled(axis[2], p.at[2]); w < last_resampled(axis[2], p.at[2]); ++w) {
          const double share = b * resample_taps(axis[2], w).share_of(p.at[2]);
          const Index cell = ((p.n * axis[0].out + u) * axis[1].out + v) * axis[2].out + w;
          if (share != 0) sum += static_cast<A>(share) * wide(dy[cell * channels + p.channel]);
        }
      }
    }
    dx[i] = rounded<T>(sum);
  }
};

void resample(View y, View x, const ResampleAxes& axes) {
  const ResampleShape s = resample_shape(y, x, axes, kernel::Resample::name);
  const On on(y.device, kernel::Resample::name);
  dispatch_device_float(x.dtype, kernel::Resample::name, [&](auto t) {
    using T = decltype(t);
    each<1>(on, y.numel(), false,
            Resample<T>{y.as<T>(), x.as<const T>(), {s.axis[0], s.axis[1], s.axis[2]}, s.channels});
  });
}
void resample_backward(View dx, View dy, const ResampleAxes& axes) {
  const ResampleShape s = resample_shape(dy, dx, axes, kernel::ResampleBackward::name);
  const On on(dx.device, kernel::ResampleBackward::name);
  dispatch_device_float(dx.dtype, kernel::ResampleBackward::name, [&](auto t) {
    using T = decltype(t);
    each<1>(on, dx.numel(), false,
            ResampleBackward<T>{dx.as<T>(), dy.as<const T>(), {s.axis[0], s.axis[1], s.axis[2]}, s.channels});
  });
}

const Kernel<kernel::Resample> resample_cuda{DeviceKind::cuda, resample};
const Kernel<kernel::ResampleBackward> resample_backward_cuda{DeviceKind::cuda, resample_backward};

}  // namespace
}  // namespace trireme::gpu
