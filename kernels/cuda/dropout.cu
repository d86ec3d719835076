// Inverted dropout, keyed by sample (formula: kernels/contracts/elementwise.h).
#include "kernels/core/kernel.h"
#include "kernels/core/random.h"
#include "kernels/cuda/divide.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/plans/elementwise_checks.h"

namespace trireme::gpu {
namespace {

constexpr int four = 4;  ///< elements that one Philox number serves

template <class T>
struct Drop {
  T* y;
  const T* x;
  const Index *sample, *first;  ///< may be null
  MaskKey key;
  std::uint32_t threshold;
  Accumulator<T> scale;
  LongDivisor width;  ///< of a row

  __device__ std::array<std::uint32_t, four> philox(std::uint64_t id, Index group) const {
    return Philox{key()}(id, static_cast<std::uint64_t>(group));
  }
  /// The random bits of n elements of a row from `at` on, a multiple of n in the row. n: 1 or four.
  template <int n>
  __device__ void bits(std::uint32_t (&to)[n], Index row, Index at) const {
    const auto id = static_cast<std::uint64_t>(sample ? sample[row] : row);
    if (first) at += first[row];
    const auto now = philox(id, at / four);
    const int skip = static_cast<int>(at % four);
    if constexpr (n == 1) {
      to[0] = skip < 2 ? (skip == 0 ? now[0] : now[1]) : (skip == 2 ? now[2] : now[3]);
    } else {
      for (int j = 0; j < n; ++j) to[j] = now[static_cast<std::size_t>(j)];
      if (skip == 0) return;
      const auto next = philox(id, at / four + 1);
      if (skip % 2 != 0) {
        for (int j = 0; j + 1 < n; ++j) to[j] = to[j + 1];
        to[n - 1] = next[0];
      }
      if (skip >= 2) {
        const bool odd = skip == 3;
        to[0] = to[2];
        to[1] = to[3];
        to[2] = odd ? next[1] : next[0];
        to[3] = odd ? next[2] : next[1];
      }
    }
  }

  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    constexpr int group = n < four ? 1 : four, loaded = std::min(n, pack<T>);
    Pack<T, loaded> p[n / loaded];
    for (int k = 0; k < n / loaded; ++k) p[k] = load<loaded>(x + i + k * loaded);
    for (int g = 0; g < n; g += group) {
      const Index row = width.quotient(i + g);
      std::uint32_t random[group];
      bits(random, row, i + g - row * width.by());
      for (int j = 0; j < group; ++j) {
        T& v = p[(g + j) / loaded].v[(g + j) % loaded];
        v = rounded<T>(random[j] >> 8 >= threshold ? wide(v) * scale : Accumulator<T>(0));
      }
    }
    for (int k = 0; k < n / loaded; ++k) store(y + i + k * loaded, p[k]);
  }
};

void dropout(View y, View x, View sample, View first, double p, MaskKey key) {
  constexpr auto op = kernel::Dropout::name;
  const Index rows = check_dropout(y, x, sample, first, p), n = x.numel();
  if (n == 0) return;
  const On on(y.device, op);
  const Index width = n / rows;
  dispatch_device_float(y.dtype, op, [&](auto t) {
    using T = decltype(t);
    constexpr int taken = std::max(four, pack<T>);
    const auto scale = static_cast<Accumulator<T>>(1 / (1 - p));
    const Drop<T> drop{y.as<T>(),         x.as<const T>(), sample.as<const Index>(), first.as<const Index>(), key,
                       drop_threshold(p), scale,           LongDivisor(width)};
    each<taken>(on, n, width % four == 0 && aligned(y.data, x.data), drop);
  });
}

const Kernel<kernel::Dropout> dropout_cuda{DeviceKind::cuda, dropout};

}  // namespace
}  // namespace trireme::gpu
