// Compare, Where, Gather, ScatterAdd, Sort and Scan.
#include "kernels/contracts/select.h"

#include <numeric>

#include "kernels/core/kernel.h"
#include "kernels/cpu/convert_block.h"
#include "kernels/plans/select_checks.h"

namespace trireme {
namespace {

/// Step between an operand's elements: 0 if it has one element for all of y.
Index step_of(const View& v) { return v.numel() == 1 ? 0 : 1; }

template <class A>
void compare_loop(std::uint8_t* y, const A* a, Index step_a, const A* b, Index step_b, Index n, Comparison how) {
  for (Index i = 0; i < n; ++i) y[i] = compares(how, a[i * step_a], b[i * step_b]);
}

void compare(View y, View a, View b, Comparison how) {
  check_compare(y, a, b);
  const Index step_a = step_of(a), step_b = step_of(b);
  dispatch_any(a.dtype, [&]<class T>(T) {
    using A = ComputeType<T>;
    const auto loop = vectorised_loop<compare_loop<A>>();
    parallel_for(y.numel(), 2,
                 [=, to = y.as<std::uint8_t>(), p = a.as<const T>(), q = b.as<const T>()](Index begin, Index end) {
                   if constexpr (std::is_same_v<A, T>) {
                     loop(to + begin, p + begin * step_a, step_a, q + begin * step_b, step_b, end - begin, how);
                   } else {
                     A left[detail::block_size], right[detail::block_size];
                     for (Index at = begin; at < end; at += detail::block_size) {
                       const Index n = std::min(detail::block_size, end - at);
                       detail::convert_block(left, p + at * step_a, step_a ? n : 1);
                       detail::convert_block(right, q + at * step_b, step_b ? n : 1);
                       loop(to + at, left, step_a, right, step_b, n, how);
                     }
                   }
                 });
  });
}

/// Calls f with an unsigned integer type of this size.
template <class F>
void with_bytes(DType type, F&& f) {
  switch (size_of(type)) {
    case 1: return f(std::uint8_t{});
    case 2: return f(std::uint16_t{});
    case 4: return f(std::uint32_t{});
    default: return f(std::uint64_t{});
  }
}

void where(View y, View condition, View a, View b) {
  check_where(y, condition, a, b);
  with_bytes(y.dtype, [&](auto t) {
    using T = decltype(t);
    sweep(y.numel(), 2,
          [to = y.as<T>(), p = a.as<const T>(), q = b.as<const T>(), c = condition.as<const std::uint8_t>(),
           step = step_of(condition), step_a = step_of(a), step_b = step_of(b)](Index begin, Index end) {
            for (Index i = begin; i < end; ++i) to[i] = c[i * step] ? p[i * step_a] : q[i * step_b];
          });
  });
}

void check_ids(const View& ids, Index n, std::string_view op) {
  const auto* id = ids.as<const Index>();
  for (Index i = 0; i < ids.numel(); ++i)
    check(id[i] >= 0 && id[i] < n, ErrorKind::data, op, "id {} is {}, expected one in [0, {})", i, id[i], n);
}

void gather(View y, View x, View ids) {
  constexpr auto op = kernel::Gather::name;
  check_gather(y, x, ids, op);
  const Index n = x.shape[1], per_outer = y.shape[1] * y.shape[2], c = y.shape[2];
  check_ids(ids, n, op);
  with_bytes(y.dtype, [&](auto t) {
    using T = decltype(t);
    parallel_for(y.numel(), 4,
                 [=, to = y.as<T>(), from = x.as<const T>(), id = ids.as<const Index>()](Index begin, Index end) {
                   for (Index i = begin; i < end; ++i) to[i] = from[(i / per_outer * n + id[i]) * c + i % c];
                 });
  });
}

/// Calls f(T{}) with a floating type of the CPU, or with Index for i64.
template <class F>
void dispatch_float_or_i64(DType type, std::string_view op, F&& f) {
  type == DType::i64 ? f(Index{}) : dispatch_float(type, op, f);
}

void scatter_add(View y, View x, View ids) {
  constexpr auto op = kernel::ScatterAdd::name;
  check_gather(x, y, ids, op);
  const Index n = y.shape[1], count = x.shape[1], c = x.shape[2];
  check_ids(ids, n, op);
  dispatch_float_or_i64(y.dtype, op, [&](auto t) {
    using T = decltype(t);
    parallel_for(x.shape[0] * c, count * 4,
                 [=, to = y.as<T>(), from = x.as<const T>(), id = ids.as<const Index>()](Index begin, Index end) {
                   for (Index k = begin; k < end; ++k) {
                     T* const column = to + k / c * n * c + k % c;
                     const auto each = [&](auto add) {
                       for (Index i = 0; i < count; ++i) {
                         const Index at = (k / c * count + i) * c + k % c;
                         add(id[at], static_cast<ComputeType<T>>(from[at]));
                       }
                     };
                     if constexpr (!std::is_same_v<T, Index> && !std::is_same_v<T, double>)
                       if (count >= 8 * n) {  // many numbers for a cell
                         double* sums = scratch<double>(n, 0);
                         for (Index i = 0; i < n; ++i) sums[i] = static_cast<ComputeType<T>>(column[i * c]);
                         each([=](Index i, auto v) { sums[i] += v; });
                         for (Index i = 0; i < n; ++i) put(column[i * c], static_cast<ComputeType<T>>(sums[i]));
                         continue;
                       }
                     each([=](Index i, auto v) {
                       T& sum = column[i * c];
                       put(sum, static_cast<ComputeType<T>>(sum) + v);
                     });
                   }
                 });
  });
}

/// The order of the first k numbers of a sorted row; equal numbers keep their order.
template <class A>
void sort_row(std::vector<Index>& order, const A* row, Index k, bool descending) {
  std::iota(order.begin(), order.end(), Index{0});
  const auto before = [=](Index i, Index j) {
    const A a = row[i], b = row[j];
    return sorts_before(a, b, descending) || (i < j && !sorts_before(b, a, descending));
  };
  if (4 * k < static_cast<Index>(order.size()))
    std::partial_sort(order.begin(), order.begin() + k, order.end(), before);
  else
    std::sort(order.begin(), order.end(), before);
}

void sort(View values, View index, View x, bool descending) {
  check_sort(values, index, x);
  const Index n = x.shape[1], k = values.shape[1];
  dispatch_any(x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = ComputeType<T>;
    parallel_for(x.shape[0], n * 32,
                 [=, to = values.as<T>(), at = index.as<Index>(), from = x.as<const T>()](Index begin, Index end) {
                   std::vector<Index> order(static_cast<std::size_t>(n));
                   std::vector<A> wide(std::is_same_v<A, T> ? 0 : order.size());
                   for (Index r = begin; r < end; ++r) {
                     const T* row = from + r * n;
                     if constexpr (std::is_same_v<A, T>) {
                       sort_row(order, row, k, descending);
                     } else {
                       std::copy_n(row, n, wide.begin());
                       sort_row<A>(order, wide.data(), k, descending);
                     }
                     for (Index i = 0; i < k; ++i) {
                       at[r * k + i] = order[static_cast<std::size_t>(i)];
                       to[r * k + i] = row[at[r * k + i]];
                     }
                   }
                 });
  });
}

void scan(View y, View x, const ScanOptions& o) {
  check_scan(y, x);
  const Index n = x.shape[1], c = x.shape[2];
  dispatch_float_or_i64(y.dtype, kernel::Scan::name, [&](auto t) {
    using T = decltype(t);
    using Wide = std::conditional_t<std::is_integral_v<T>, std::uint64_t, double>;
    parallel_for(x.shape[0] * c, n * 4, [=, to = y.as<T>(), from = x.as<const T>()](Index begin, Index end) {
      for (Index k = begin; k < end; ++k) {
        Wide all = o.kind == ScanKind::sum ? 0 : 1;
        for (Index i = 0; i < n; ++i) {
          const Index at = (k / c * n + (o.reverse ? n - 1 - i : i)) * c + k % c;
          const auto v = static_cast<Wide>(static_cast<ComputeType<T>>(from[at])), before = all;
          all = o.kind == ScanKind::sum ? all + v : all * v;
          put(to[at], static_cast<ComputeType<T>>(o.exclusive ? before : all));
        }
      }
    });
  });
}

const Kernel<kernel::Compare> compare_cpu{DeviceKind::cpu, compare};
const Kernel<kernel::Where> where_cpu{DeviceKind::cpu, where};
const Kernel<kernel::Gather> gather_cpu{DeviceKind::cpu, gather};
const Kernel<kernel::ScatterAdd> scatter_add_cpu{DeviceKind::cpu, scatter_add};
const Kernel<kernel::Sort> sort_cpu{DeviceKind::cpu, sort};
const Kernel<kernel::Scan> scan_cpu{DeviceKind::cpu, scan};

}  // namespace
}  // namespace trireme
