// Axpby, Fill, Cast and Normalize.
#include "kernels/contracts/elementwise.h"

#include <cstring>

#include "kernels/core/kernel.h"
#include "kernels/cpu/convert_block.h"
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

using ConvertLoop = void (*)(void* to, const void* from, Index n);
template <class T, class S>
void convert_any(void* to, const void* from, Index n) {
  detail::convert_loop(static_cast<T*>(to), static_cast<const S*>(from), n);
}
/// f(A{}) with the ComputeType A of numbers of type t.
template <class F>
void with_compute_type(DType t, F&& f) {
  if (t == DType::f64) return f(double{});
  if (t == DType::i64) return f(std::int64_t{});
  is_float(t) ? f(float{}) : f(std::int32_t{});
}

/// The loops that convert, one after another: bf16 and f16 to f32, that (or another type) to the ComputeType of the
/// result, and that to the result.
std::vector<ConvertLoop> conversions(DType to, DType from) {
  std::vector<ConvertLoop> loops;
  const auto add = [&]<class T, class S>(T, S) {
    if constexpr (!std::is_same_v<T, S>) loops.push_back(vectorised_loop<convert_any<T, S>>());
  };
  if (from == DType::bf16) add(float{}, bf16{});
  if (from == DType::f16) add(float{}, f16{});
  dispatch_any(is_half(from) ? DType::f32 : from, [&]<class S>(S s) {
    if constexpr (!is_narrow_type<S>) {
      if (to == DType::boolean) return add(bool{}, s);
      with_compute_type(to, [&](auto a) { add(a, s); });
    }
  });
  dispatch_any(to, [&]<class T>(T t) {
    if constexpr (!std::is_same_v<T, bool>) add(t, ComputeType<T>{});
  });
  return loops;
}

void cast(View y, View x) {
  check_cast(y, x);
  const Index n = y.numel(), size_to = size_of(y.dtype), size_from = size_of(x.dtype);
  if (y.dtype == x.dtype)
    return parallel_for(n, 1, [&](Index begin, Index end) {
      std::memmove(y.as<char>() + begin * size_to, x.as<const char>() + begin * size_from,
                   static_cast<std::size_t>((end - begin) * size_to));
    });
  const std::vector<ConvertLoop> loops = conversions(y.dtype, x.dtype);
  parallel_for(n, 1, [&](Index begin, Index end) {
    double block[2][detail::block_size];
    // One loop needs no blocks.
    const Index step = loops.size() == 1 ? end - begin : detail::block_size;
    for (Index at = begin; at < end; at += step) {
      const Index count = std::min(step, end - at);
      const void* in = x.as<const char>() + at * size_from;
      for (std::size_t k = 0; k < loops.size(); ++k) {
        void* out = k + 1 < loops.size() ? block[k] : static_cast<void*>(y.as<char>() + at * size_to);
        loops[k](out, in, count);
        in = out;
      }
    }
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
