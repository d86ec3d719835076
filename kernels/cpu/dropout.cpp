// Inverted dropout, keyed by sample (formula: kernels/contracts/elementwise.h).
#include "kernels/core/kernel.h"
#include "kernels/cpu/philox.h"
#include "kernels/cpu/vector.h"
#include "kernels/plans/elementwise_checks.h"

namespace trireme {
namespace {

constexpr Index tile = 512;  ///< elements whose random bits lie on the stack at one time

struct ReluDropout {
  std::uint64_t key;
  std::uint32_t threshold;
};

template <class T>
void drop(T* y, const T* x, Index count, std::uint64_t sample, Index first, const ReluDropout& mask,
          Accumulator<T> scale) {
  std::uint32_t room[tile + 4], *bits = room + first % 4;
  philox_fill(room, mask.key, sample, static_cast<std::uint64_t>(first / 4), (count + first % 4 + 3) / 4);
#pragma omp simd
  for (Index i = 0; i < count; ++i) {
    Accumulator<T> kept = static_cast<Accumulator<T>>(x[i]) * scale;
    put(y[i], bits[i] >> 8 >= mask.threshold ? kept : Accumulator<T>{0});
  }
}

void dropout(View y, View x, View sample, View first, double p, MaskKey key) {
  constexpr auto op = kernel::Dropout::name;
  Index rows = check_dropout(y, x, sample, first, p);
  Index n = x.numel();
  if (n == 0) return;
  Index width = n / rows, tiles = (width + tile - 1) / tile;
  ReluDropout mask{key(), drop_threshold(p)};
  dispatch_float(y.dtype, op, [&](auto t) {
    using T = decltype(t);
    auto scale = static_cast<Accumulator<T>>(1 / (1 - p));
    sweep(rows * tiles, std::min(width, tile) * 4,
          [=, to = y.as<T>(), from = x.as<const T>(), ids = sample.as<const Index>(), starts = first.as<const Index>()](
              Index begin, Index end) {
            for (Index k = begin; k < end; ++k) {
              Index row = k / tiles, done = k % tiles * tile, at = row * width + done;
              auto id = static_cast<std::uint64_t>(ids ? ids[row] : row);
              drop(to + at, from + at, std::min(tile, width - done), id, (starts ? starts[row] : 0) + done, mask,
                   scale);
            }
          });
  });
}

const Kernel<kernel::Dropout> dropout_cpu{DeviceKind::cpu, dropout};

}  // namespace
}  // namespace trireme
