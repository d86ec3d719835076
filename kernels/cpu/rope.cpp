// Rotary position embeddings.
#include "kernels/core/kernel.h"
#include "kernels/cpu/vector.h"
#include "kernels/plans/attention_checks.h"
#include "kernels/plans/dispatch.h"

namespace trireme {
namespace {

/// Rotates the pairs of one head; y may be x. sign: -1 for the inverse.
template <bool interleaved, class T, class A = Accumulator<T>>
void rotate(T* y, const T* x, const A* table, Index pairs, A sign) {
  const A *cosines = table, *sines = table + pairs;
  const Index step = interleaved ? 2 : 1, across = interleaved ? 1 : pairs;
#pragma omp simd
  for (Index i = 0; i < pairs; ++i) {
    const A a = static_cast<A>(x[i * step]), b = static_cast<A>(x[i * step + across]), c = cosines[i],
            s = sines[i] * sign;
    put(y[i * step], a * c - b * s);
    put(y[i * step + across], b * c + a * s);
  }
}

void rope(View y, View x, View table, bool interleaved, bool inverse) {
  constexpr auto op = kernel::Rope::name;
  check_rope(y, x, table, op);
  if (x.numel() == 0) return;
  const Index heads = x.shape[2], width = x.shape[3], rotated = table.shape[-1], rows = row_count(table.shape);
  dispatch_float(x.dtype, op, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    dispatch_bool(interleaved, [&](auto pairs_touch) {
      sweep(x.shape[0] * x.shape[1], heads * width * 4,
            [=, to = y.as<T>(), from = x.as<const T>(), turns = table.as<const A>()](Index begin, Index end) {
              const A sign = inverse ? A{-1} : A{1};
              for (Index token = begin; token < end; ++token)
                for (Index at = token * heads * width; at < (token + 1) * heads * width; at += width) {
                  rotate<pairs_touch>(to + at, from + at, turns + token % rows * rotated, rotated / 2, sign);
                  if (to != from) std::copy(from + at + rotated, from + at + width, to + at + rotated);
                }
            });
    });
  });
}

const Kernel<kernel::Rope> rope_cpu{DeviceKind::cpu, rope};

}  // namespace
}  // namespace trireme
