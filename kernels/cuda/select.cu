// Compare, Where, Gather, ScatterAdd, Sort and Scan: one thread per element, or per column that is processed in order.
#include "kernels/contracts/select.h"

#include "kernels/core/kernel.h"
#include "kernels/cuda/ids.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/plans/select_checks.h"

namespace trireme::gpu {
namespace {

/// Step between an operand's elements: 0 if it has one element for all of y.
Index step_of(const View& v) { return v.numel() == 1 ? 0 : 1; }

struct Compared {
  std::uint8_t* y;
  const void *a, *b;
  Index step_a, step_b;
  DType type;
  Comparison how;
  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    with_number(type, [&](auto t) {
      using A = decltype(t);
      y[i] = compares(how, number<A>(a, type, i * step_a), number<A>(b, type, i * step_b));
    });
  }
};
void compare(View y, View a, View b, Comparison how) {
  check_compare(y, a, b);
  const On on(y.device, kernel::Compare::name);
  each<1>(on, y.numel(), false, Compared{y.as<std::uint8_t>(), a.data, b.data, step_of(a), step_of(b), a.dtype, how});
}

template <class T>
struct Chosen {
  T* y;
  const std::uint8_t* condition;
  const T *a, *b;
  Index step, step_a, step_b;
  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    y[i] = condition[i * step] ? a[i * step_a] : b[i * step_b];
  }
};
void where(View y, View condition, View a, View b) {
  check_where(y, condition, a, b);
  const On on(y.device, kernel::Where::name);
  with_bytes(y.dtype, [&](auto t) {
    using T = decltype(t);
    each<1>(on, y.numel(), false,
            Chosen<T>{y.as<T>(), condition.as<const std::uint8_t>(), a.as<const T>(), b.as<const T>(),
                      step_of(condition), step_of(a), step_of(b)});
  });
}

template <class T>
struct Gathered {
  T* y;
  const T* x;
  Ids ids;
  Index per_outer, c;
  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    const Index from = ids.of(i);
    if (from >= 0) y[i] = x[(i / per_outer * ids.rows + from) * c + i % c];
  }
};
void gather(View y, View x, View ids) {
  constexpr auto op = kernel::Gather::name;
  check_gather(y, x, ids, op);
  const On on(y.device, op);
  with_bytes(y.dtype, [&](auto t) {
    using T = decltype(t);
    each<1>(on, y.numel(), false,
            Gathered<T>{y.as<T>(), x.as<const T>(), Ids{ids.as<const Index>(), x.shape[1], on.fault()},
                        y.shape[1] * y.shape[2], y.shape[2]});
  });
}

/// Calls f(A{}) with float or double for floating types, with Index for i64.
template <class F>
void with_sum(DType type, std::string_view op, const F& f) {
  check(is_float(type) || type == DType::i64, op, "got {}, expected a floating type (f32, f64, bf16, f16) or i64",
        name_of(type));
  with_number(type, f);
}
template <class A>
__device__ void put_sum(void* to, DType type, Index i, A v) {
  if constexpr (std::is_integral_v<A>)
    static_cast<Index*>(to)[i] = static_cast<Index>(v);
  else
    put_number(to, type, i, v);
}

template <class A>
struct AddColumn {
  void* y;
  const void* x;
  DType type;
  Ids ids;
  Index count, c;
  template <int n>
  __device__ void operator()(Count<n>, Index k) const {
    for (Index i = 0; i < count; ++i) {
      const Index at = (k / c * count + i) * c + k % c, to = ids.of(at);
      if (to < 0) continue;
      const Index sum = (k / c * ids.rows + to) * c + k % c;
      put_sum(y, type, sum, number<A>(y, type, sum) + number<A>(x, type, at));
    }
  }
};
void scatter_add(View y, View x, View ids) {
  constexpr auto op = kernel::ScatterAdd::name;
  check_gather(x, y, ids, op);
  const On on(y.device, op);
  with_sum(y.dtype, op, [&](auto a) {
    each<1>(on, x.shape[0] * x.shape[2], false,
            AddColumn<decltype(a)>{y.data, x.data, y.dtype, Ids{ids.as<const Index>(), y.shape[1], on.fault()},
                                   x.shape[1], x.shape[2]});
  });
}

/// An element finds its position by counting the elements before it: n^2 comparisons for a row of n.
template <class A>
struct Placed {
  void* values;
  Index* index;
  const void* x;
  DType type;
  Index width, most;
  bool descending;
  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    const Index row = i / width, own = i % width;
    const A v = number<A>(x, type, i);
    Index place = 0;
    for (Index j = 0; j < width; ++j) {
      const A other = number<A>(x, type, row * width + j);
      place += sorts_before(other, v, descending) || (j < own && !sorts_before(v, other, descending));
    }
    if (place >= most) return;
    index[row * most + place] = own;
    const auto copy = [&](auto t) {
      using T = decltype(t);
      static_cast<T*>(values)[row * most + place] = static_cast<const T*>(x)[i];
    };
    is_float(type) ? with_float(type, copy) : with_integer(type, copy);
  }
};
void sort(View values, View index, View x, bool descending) {
  check_sort(values, index, x);
  const On on(x.device, kernel::Sort::name);
  with_number(x.dtype, [&](auto a) {
    each<1>(
        on, x.numel(), false,
        Placed<decltype(a)>{values.data, index.as<Index>(), x.data, x.dtype, x.shape[1], values.shape[1], descending});
  });
}

/// A: double, or Index for i64, whose sums overflow into their lowest bits.
template <class A>
struct ScanColumn {
  void* y;
  const void* x;
  DType type;
  Index length, c;
  ScanOptions o;
  template <int n>
  __device__ void operator()(Count<n>, Index k) const {
    using Wide = std::conditional_t<std::is_integral_v<A>, std::uint64_t, A>;
    Wide all = o.kind == ScanKind::sum ? 0 : 1;
    for (Index i = 0; i < length; ++i) {
      const Index at = (k / c * length + (o.reverse ? length - 1 - i : i)) * c + k % c;
      const auto v = static_cast<Wide>(number<A>(x, type, at)), before = all;
      all = o.kind == ScanKind::sum ? all + v : all * v;
      put_sum(y, type, at, o.exclusive ? before : all);
    }
  }
};
void scan(View y, View x, const ScanOptions& o) {
  check_scan(y, x);
  const On on(y.device, kernel::Scan::name);
  with_sum(y.dtype, kernel::Scan::name, [&](auto a) {
    using A = std::conditional_t<std::is_integral_v<decltype(a)>, Index, double>;
    each<1>(on, x.shape[0] * x.shape[2], false, ScanColumn<A>{y.data, x.data, y.dtype, x.shape[1], x.shape[2], o});
  });
}

const Kernel<kernel::Compare> compare_cuda{DeviceKind::cuda, compare};
const Kernel<kernel::Where> where_cuda{DeviceKind::cuda, where};
const Kernel<kernel::Gather> gather_cuda{DeviceKind::cuda, gather};
const Kernel<kernel::ScatterAdd> scatter_add_cuda{DeviceKind::cuda, scatter_add};
const Kernel<kernel::Sort> sort_cuda{DeviceKind::cuda, sort};
const Kernel<kernel::Scan> scan_cuda{DeviceKind::cuda, scan};

}  // namespace
}  // namespace trireme::gpu
