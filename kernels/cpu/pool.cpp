// Max and average pooling: plain loops over windows, vector code over channels.
#include <limits>

#include "kernels/core/kernel.h"
#include "kernels/cpu/dnnl.h"
#include "kernels/cpu/vector.h"
#include "kernels/plans/pool_shape.h"

namespace trireme {
namespace {

/// f(n, o0, o1) for every row of outputs, divided among threads, as vector code.
template <class F>
void for_rows(const PoolShape& s, F f) {
  sweep(s.n * s.out[0] * s.out[1], s.out[2] * s.channels * s.window_cells(), [f, s](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) f(r / s.out[1] / s.out[0], r / s.out[1] % s.out[0], r % s.out[1]);
  });
}
template <class I, class F>
void with_index(const PoolShape& s, F&& f) {
  if (s.window_cells() > 255)
    f(std::int32_t{});
  else
    f(I{});
}

void max_pool(View y, View index, View x, const PoolOptions& o) {
  constexpr auto op = kernel::MaxPool::name;
  PoolShape s = max_pool_shape(x, y, index, o, op);
  dispatch_float(x.dtype, op, [&]<class T>(T) {
    with_index<std::uint8_t>(s, [&]<class I>(I) {
      for_rows(s, [=, from = x.as<const T>(), to = y.as<T>(), at = index.as<I>()](Index n, Index o0, Index o1) {
        const Index channels = s.channels;
        for (Index o2 = 0; o2 < s.out[2]; ++o2) {
          Index place = (((n * s.out[0] + o0) * s.out[1] + o1) * s.out[2] + o2) * channels;
          T* best = to + place;
          I* winner = at + place;
          // A window that dilation places entirely outside of the input is PyTorch's padding: minus infinity.
          for (Index c = 0; c < channels; ++c) {
            best[c] = T(-std::numeric_limits<float>::infinity());
            winner[c] = 0;
          }
          bool first = true;
          s.for_window(o0, o1, o2, [&](Index k, Index cell) {
            const T* v = from + (n * s.in_cells() + cell) * channels;
            const I here = static_cast<I>(k);
            const int start = first;
            first = false;
#pragma omp simd
            for (Index c = 0; c < channels; ++c) {
              const auto now = static_cast<ComputeType<T>>(v[c]), before = static_cast<ComputeType<T>>(best[c]);
              bool better = start | (now > before) | (now != now);  // NaN wins, as in PyTorch
              put(best[c], better ? now : before);
              winner[c] = better ? here : winner[c];
            }
          });
        }
      });
    });
  });
}

/// add(sum, n): the gradient of sample n summed into zeroed cells [in_cells * C] of the accumulator type.
/// Windows overlap, so samples, not windows, are divided among threads.
template <class T, class F>
void scatter_samples(const View& dx, const PoolShape& s, F add) {
  using A = Accumulator<T>;
  const Index count = s.in_cells() * s.channels;
  parallel_for(s.n, count + s.out_cells() * s.channels * s.window_cells(), [&](Index begin, Index end) {
    constexpr bool direct = std::is_same_v<T, A>;
    onednn::Scratch copy(direct ? 0 : static_cast<std::size_t>(count) * sizeof(A));
    for (Index n = begin; n < end; ++n) {
      T* to = dx.as<T>() + n * count;
      A* sum = copy.as<A>();
      if constexpr (direct) sum = to;
      vectorised([=] {
        std::fill_n(sum, count, A(0));
        add(sum, n);
        if constexpr (!direct)
          for (Index i = 0; i < count; ++i) to[i] = static_cast<T>(sum[i]);
      });
    }
  });
}
template <class F>
void for_outputs(const PoolShape& s, F&& f) {
  for (Index o0 = 0, place = 0; o0 < s.out[0]; ++o0)
    for (Index o1 = 0; o1 < s.out[1]; ++o1)
      for (Index o2 = 0; o2 < s.out[2]; ++o2) f(place++, o0, o1, o2);
}

void max_pool_backward(View dx, View dy, View index, const PoolOptions& o) {
  constexpr auto op = kernel::MaxPoolBackward::name;
  PoolShape s = max_pool_shape(dx, dy, index, o, op);
  dispatch_float(dx.dtype, op, [&]<class T>(T) {
    using A = Accumulator<T>;
    with_index<std::uint8_t>(s, [&]<class I>(I) {
      scatter_samples<T>(dx, s, [=, from = dy.as<const T>(), at = index.as<const I>()](A* sum, Index n) {
        const Index channels = s.channels;
        for_outputs(s, [&](Index place, Index o0, Index o1, Index o2) {
          const T* g = from + (n * s.out_cells() + place) * channels;
          const I* winner = at + (n * s.out_cells() + place) * channels;
          s.for_window(o0, o1, o2, [&](Index k, Index cell) {
            const I here = static_cast<I>(k);
            A* to = sum + cell * channels;
#pragma omp simd
            for (Index c = 0; c < channels; ++c) to[c] += winner[c] == here ? static_cast<A>(g[c]) : A(0);
          });
        });
      });
    });
  });
}

Index divisor(const PoolShape& s, const PoolOptions& o, Index o0, Index o1, Index o2) {
  if (o.count_padding) return s.window_cells();
  Index inside = 0;
  s.for_window(o0, o1, o2, [&](Index, Index) { ++inside; });
  return std::max<Index>(1, inside);
}

void avg_pool(View y, View x, const PoolOptions& o) {
  constexpr auto op = kernel::AvgPool::name;
  PoolShape s = avg_pool_shape(x, y, o, op);
  dispatch_float(x.dtype, op, [&]<class T>(T) {
    // Sums of windows of more cells are in f64.
    const auto average = [&]<class A>(A) {
      for_rows(s, [=, from = x.as<const T>(), to = y.as<T>()](Index n, Index o0, Index o1) {
        constexpr Index most = 256;  // channels whose sums lie on the stack at one time
        const Index channels = s.channels;
        for (Index o2 = 0; o2 < s.out[2]; ++o2) {
          T* out = to + (((n * s.out[0] + o0) * s.out[1] + o1) * s.out[2] + o2) * channels;
          const A parts = static_cast<A>(divisor(s, o, o0, o1, o2));
          for (Index c0 = 0; c0 < channels; c0 += most) {
            const Index count = std::min(most, channels - c0);
            A sum[most] = {};
            s.for_window(o0, o1, o2, [&](Index, Index cell) {
              const T* v = from + (n * s.in_cells() + cell) * channels + c0;
#pragma omp simd
              for (Index c = 0; c < count; ++c) sum[c] += static_cast<A>(v[c]);
            });
            for (Index c = 0; c < count; ++c) out[c0 + c] = static_cast<T>(sum[c] / parts);
          }
        }
      });
    };
    s.window_cells() <= 1024 ? average(Accumulator<T>{}) : average(double{});
  });
}

void avg_pool_backward(View dx, View dy, const PoolOptions& o) {
  constexpr auto op = kernel::AvgPoolBackward::name;
  PoolShape s = avg_pool_shape(dx, dy, o, op);
  dispatch_float(dx.dtype, op, [&]<class T>(T) {
    using A = Accumulator<T>;
    scatter_samples<T>(dx, s, [=, from = dy.as<const T>()](A* sum, Index n) {
      const Index channels = s.channels;
      for_outputs(s, [&](Index place, Index o0, Index o1, Index o2) {
        const T* g = from + (n * s.out_cells() + place) * channels;
        const A parts = static_cast<A>(divisor(s, o, o0, o1, o2));
        s.for_window(o0, o1, o2, [&](Index, Index cell) {
          A* to = sum + cell * channels;
#pragma omp simd
          for (Index c = 0; c < channels; ++c) to[c] += static_cast<A>(g[c]) / parts;
        });
      });
    });
  });
}

const Kernel<kernel::MaxPool> max_pool_cpu{DeviceKind::cpu, max_pool};
const Kernel<kernel::MaxPoolBackward> max_pool_backward_cpu{DeviceKind::cpu, max_pool_backward};
const Kernel<kernel::AvgPool> avg_pool_cpu{DeviceKind::cpu, avg_pool};
const Kernel<kernel::AvgPoolBackward> avg_pool_backward_cpu{DeviceKind::cpu, avg_pool_backward};

}  // namespace
}  // namespace trireme
