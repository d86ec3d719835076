// Compare, Where, Gather, ScatterAdd, Sort and Scan: a thread to an element, or to a column that is walked in order.
#include "kernels/contracts/select.h"

#include "kernels/core/kernel.h"
#include "kernels/cuda/ids.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/plans/select_checks.h"

namespace trireme::gpu {
namespace {

/// How far an operand's elements are apart: 0 of one that serves all of y.
Index step_of(const View& v) { return v.numel() == 1 ? 0 : 1; }

template <class T>
struct Compared {
  std::uint8_t* y;
  const T *a, *b;
  Index step_a, step_b;
  Comparison how;
  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    y[i] = compares(how, wide(a[i * step_a]), wide(b[i * step_b]));
  }
};
void compare(View y, View a, View b, Comparison how) {
  check_compare(y, a, b);
  const On on(y.device, kernel::Compare::name);
  dispatch_any(a.dtype, [&](auto t) {
    using T = decltype(t);
    each<1>(on, y.numel(), false,
            Compared<T>{y.as<std::uint8_t>(), a.as<const T>(), b.as<const T>(), step_of(a), step_of(b), how});
  });
}

/// Calls f with an unsigned integer of as many bytes.
template <class F>
void with_bytes(DType type, F&& f) {
  switch (size_of(type)) {
    case 1: return f(std::uint8_t{});
    case 2: return f(std::uint16_t{});
    case 4: return f(std::uint32_t{});
    default: return f(std::uint64_t{});
  }
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

/// Calls f(T{}) with a floating type, or with Index for i64.
template <class F>
void dispatch_float_or_i64(DType type, std::string_view op, F&& f) {
  type == DType::i64 ? f(Index{}) : dispatch_device_float(type, op, f);
}

template <class T>
struct AddColumn {
  T* y;
  const T* x;
  Ids ids;
  Index count, c;
  template <int n>
  __device__ void operator()(Count<n>, Index k) const {
    for (Index i = 0; i < count; ++i) {
      const Index at = (k / c * count + i) * c + k % c, to = ids.of(at);
      if (to < 0) continue;
      T& sum = y[(k / c * ids.rows + to) * c + k % c];
      sum = rounded<T>(wide(sum) + wide(x[at]));
    }
  }
};
void scatter_add(View y, View x, View ids) {
  constexpr auto op = kernel::ScatterAdd::name;
  check_gather(x, y, ids, op);
  const On on(y.device, op);
  dispatch_float_or_i64(y.dtype, op, [&](auto t) {
    using T = decltype(t);
    each<1>(on, x.shape[0] * x.shape[2], false,
            AddColumn<T>{y.as<T>(), x.as<const T>(), Ids{ids.as<const Index>(), y.shape[1], on.fault()}, x.shape[1],
                         x.shape[2]});
  });
}

/// An element finds its place by counting those before it: n^2 comparisons for a row of n.
template <class T>
struct Placed {
  T* values;
  Index* index;
  const T* x;
  Index width, most;
  bool descending;
  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    const Index row = i / width, own = i % width;
    const T* from = x + row * width;
    const auto v = wide(from[own]);
    Index place = 0;
    for (Index j = 0; j < width; ++j) {
      const auto other = wide(from[j]);
      place += sorts_before(other, v, descending) || (j < own && !sorts_before(v, other, descending));
    }
    if (place < most) values[row * most + place] = from[own], index[row * most + place] = own;
  }
};
void sort(View values, View index, View x, bool descending) {
  check_sort(values, index, x);
  const On on(x.device, kernel::Sort::name);
  dispatch_any(x.dtype, [&](auto t) {
    using T = decltype(t);
    each<1>(on, x.numel(), false,
            Placed<T>{values.as<T>(), index.as<Index>(), x.as<const T>(), x.shape[1], values.shape[1], descending});
  });
}

template <class T>
struct ScanColumn {
  T* y;
  const T* x;
  Index length, c;
  ScanOptions o;
  template <int n>
  __device__ void operator()(Count<n>, Index k) const {
    using Wide = std::conditional_t<std::is_integral_v<T>, std::uint64_t, double>;
    Wide all = o.kind == ScanKind::sum ? 0 : 1;
    for (Index i = 0; i < length; ++i) {
      const Index at = (k / c * length + (o.reverse ? length - 1 - i : i)) * c + k % c;
      const auto v = static_cast<Wide>(wide(x[at])), before = all;
      all = o.kind == ScanKind::sum ? all + v : all * v;
      y[at] = rounded<T>(static_cast<ComputeType<T>>(o.exclusive ? before : all));
    }
  }
};
void scan(View y, View x, const ScanOptions& o) {
  check_scan(y, x);
  const On on(y.device, kernel::Scan::name);
  dispatch_float_or_i64(y.dtype, kernel::Scan::name, [&](auto t) {
    using T = decltype(t);
    each<1>(on, x.shape[0] * x.shape[2], false, ScanColumn<T>{y.as<T>(), x.as<const T>(), x.shape[1], x.shape[2], o});
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
