// Rotary position embeddings: a thread rotates several adjacent pairs of a head's elements.
#include "kernels/core/kernel.h"
#include "kernels/cuda/divide.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/plans/attention_checks.h"
#include "kernels/plans/dispatch.h"

namespace trireme::gpu {
namespace {

/// Items of a head: its pairs, then the elements that stay.
template <class T, bool interleaved>
struct Rotate {
  using A = Accumulator<T>;
  T* y;
  const T* x;  ///< may be y
  const A* table;
  LongDivisor items, heads, tokens;  ///< items of a head; tokens: rows of the table
  Index width, half;                 ///< elements of a head, and pairs
  A sign;                            ///< -1: by the negative angle

  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    Index head = i;
    const Index item = items.split(head), at = head * width;
    if (item >= half) {
      if (y == x) return;
      A v[n];
      take<n == 1>(v, x + at + half + item);
      put<n == 1>(y + at + half + item, v);
      return;
    }
    Index token = heads.quotient(head);
    const A* row = table + tokens.split(token) * 2 * half + item;
    A cosine[n], sine[n];
    take<n == 1>(cosine, row);
    take<n == 1>(sine, row + half);
    if constexpr (interleaved) {
      A v[2 * n];
      take<n == 1>(v, x + at + 2 * item);
#pragma unroll
      for (int j = 0; j < n; ++j) turn(v[2 * j], v[2 * j + 1], cosine[j], sine[j] * sign);
      put<n == 1>(y + at + 2 * item, v);
    } else {
      A a[n], b[n];
      take<n == 1>(a, x + at + item);
      take<n == 1>(b, x + at + item + half);
#pragma unroll
      for (int j = 0; j < n; ++j) turn(a[j], b[j], cosine[j], sine[j] * sign);
      put<n == 1>(y + at + item, a);
      put<n == 1>(y + at + item + half, b);
    }
  }

 private:
  __device__ static void turn(A& a, A& b, A cosine, A sine) {
    const A first = a;
    a = first * cosine - b * sine;
    b = b * cosine + first * sine;
  }
  template <bool single, class E, int n>
  __device__ static void take(A (&to)[n], const E* from) {
    constexpr int step = single ? 1 : pack<E>;
#pragma unroll
    for (int j = 0; j < n; j += step) {
      const auto p = load<step>(from + j);
#pragma unroll
      for (int e = 0; e < step; ++e) to[j + e] = wide(p.v[e]);
    }
  }
  template <bool single, int n>
  __device__ static void put(T* to, const A (&from)[n]) {
    constexpr int step = single ? 1 : pack<T>;
#pragma unroll
    for (int j = 0; j < n; j += step) {
      Pack<T, step> p;
#pragma unroll
      for (int e = 0; e < step; ++e) p.v[e] = rounded<T>(from[j + e]);
      store(to + j, p);
    }
  }
};

void rope(View y, View x, View table, bool interleaved, bool inverse) {
  constexpr auto op = kernel::Rope::name;
  check_rope(y, x, table, op);
  if (x.numel() == 0) return;
  const On on(x.device, op);
  const Index width = x.shape[3], half = table.shape[-1] / 2, items = width - half;
  dispatch_device_float(x.dtype, op, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    constexpr int n = pack<T>;
    const bool vector = width % n == 0 && half % n == 0 && aligned(x.data, y.data, table.data);
    dispatch_bool(interleaved, [&](auto pairs) {
      each<n>(
          on, x.numel() / width * items, vector,
          Rotate<T, pairs>{y.as<T>(), x.as<const T>(), table.as<const A>(), LongDivisor(items), LongDivisor(x.shape[2]),
                           LongDivisor(row_count(table.shape)), width, half, static_cast<A>(inverse ? -1 : 1)});
    });
  });
}

const Kernel<kernel::Rope> rope_cuda{DeviceKind::cuda, rope};

}  // namespace
}  // namespace trireme::gpu
