// Axpby, Fill, Cast and Normalize.
#include "kernels/contracts/elementwise.h"

#include "kernels/core/kernel.h"
#include "kernels/cpu/vector.h"
#include "kernels/plans/elementwise_checks.h"

namespace trireme {
namespace {

void axpby(View y, View x, double alpha, double beta) {
  constexpr auto op = kernel::Axpby::name;
  check_axpby(y, x);
  dispatch_float(y.dtype, op, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    sweep(y.numel(), 2, [to = y.as<T>(), from = x.as<T>(), a = A(alpha), b = A(beta)](Index begin, Index end) {
      if (b == A{0}) {
#pragma omp simd
        for (Index i = begin; i < end; ++i) put(to[i], a * from[i]);
      } else {
#pragma omp simd
        for (Index i = begin; i < end; ++i) put(to[i], a * from[i] + b * to[i]);
      }
    });
  });
}

void fill(View y, double value) {
  dispatch_any(y.dtype, [&](auto t) {
    using T = decltype(t);
    T v = element<T>(value);
    parallel_for(y.numel(), 1, [to = y.as<T>(), v](Index begin, Index end) { std::fill(to + begin, to + end, v); });
  });
}

void cast(View y, View x) {
  check_cast(y, x);
  dispatch_any(y.dtype, [&](auto to_type) {
    dispatch_any(x.dtype, [&](auto from_type) {
      using T = decltype(to_type);
      using S = decltype(from_type);
      sweep(y.numel(), 1, [to = y.as<T>(), from = x.as<const S>()](Index begin, Index end) {
#pragma omp simd
        for (Index i = begin; i < end; ++i) to[i] = element<T>(from[i]);
      });
    });
  });
}

void normalize(View y, View x, View scale, View shift) {
  constexpr auto op = kernel::Normalize::name;
  check_normalize(y, x, scale, shift);
  if (y.numel() == 0) return;
  // Few channels are repeated to a row of some length, so that the inner loop is worth its start.
  Index channels = row_width(y.shape), copies = repeats(channels), width = channels * copies, n = y.numel();
  dispatch_float(y.dtype, op, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    A* a = scratch<A>(2 * width, 0);
    A* b = a + width;
    load(a, scale, copies, op);
    load(b, shift, copies, op);
    sweep((n + width - 1) / width, width,
          [=, to = y.as<T>(), from = x.as<const std::uint8_t>()](Index begin, Index end) {
            for (Index r = begin; r < end; ++r) {
              Index count = std::min(width, n - r * width);
#pragma omp simd
              for (Index i = 0; i < count; ++i)
                put(to[r * width + i], a[i] * static_cast<A>(from[r * width + i]) + b[i]);
            }
          });
  });
}

const Kernel<kernel::Axpby> axpby_cpu{DeviceKind::cpu, axpby};
const Kernel<kernel::Fill> fill_cpu{DeviceKind::cpu, fill};
const Kernel<kernel::Cast> cast_cpu{DeviceKind::cpu, cast};
const Kernel<kernel::Normalize> normalize_cpu{DeviceKind::cpu, normalize};

}  // namespace
}  // namespace trireme
