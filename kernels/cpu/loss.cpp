// Softmax and cross entropy over the last axis, one row at a time. The maximum is subtracted before exp.
#include "kernels/contracts/loss.h"

#include <algorithm>
#include <limits>

#include "kernels/core/kernel.h"
#include "kernels/cpu/vector.h"
#include "kernels/formulas/math.h"
#include "kernels/plans/loss_checks.h"

namespace trireme {
namespace {

constexpr Index row_cost = 8;  ///< elementary operations per element of a row

/// Plain code for vectorised(): the maximum of a row (ignoring NaN, which exp finds), and the sum of exp(x - maximum).
template <class T>
Accumulator<T> largest(const T* x, Index n) {
  using A = Accumulator<T>;
  A m = -std::numeric_limits<A>::infinity();
#pragma omp simd reduction(max : m)
  for (Index i = 0; i < n; ++i) {
    A v = x[i];
    m = v > m ? v : m;
  }
  return m;
}
/// Plain code for vectorised(): the sum of f(i) over [0, n), of stretches in A, of the stretches in f64.
template <class A, class F>
A sum_of(Index n, F f) {
  constexpr Index stretch = 1024;
  const auto part = [f](Index begin, Index end) {
    A sum{};
#pragma omp simd reduction(+ : sum)
    for (Index i = begin; i < end; ++i) sum += f(i);
    return sum;
  };
  if (n <= stretch) return part(0, n);
  double total = 0;
  for (Index k = 0; k < n; k += stretch) total += part(k, std::min(k + stretch, n));
  return static_cast<A>(total);
}
template <class T, class A = Accumulator<T>>
A sum_exp(const T* x, Index n, A shift) {
  return sum_of<A>(n, [=](Index i) { return math::exp(static_cast<A>(x[i]) - shift); });
}

/// body(row) for each row, vectorised; of all views the first one's shape counts.
template <class F>
void each_row(const View& v, F body) {
  if (v.numel() == 0) return;
  sweep(row_count(v.shape), row_width(v.shape) * row_cost, [body](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) body(r);
  });
}

void softmax(View y, View x) {
  check_same(y, x, kernel::Softmax::name);
  dispatch_float(y.dtype, kernel::Softmax::name, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    Index n = row_width(x.shape);
    each_row(x, [n, to = y.as<T>(), from = x.as<const T>()](Index r) {
      const T* in = from + r * n;
      T* out = to + r * n;
      const A shift = largest(in, n);
      if constexpr (std::is_same_v<T, A>) {
        const A sum = A{1} / sum_of<A>(n, [=](Index i) { return out[i] = math::exp(in[i] - shift); });
#pragma omp simd
        for (Index i = 0; i < n; ++i) out[i] *= sum;
      } else {
        const A sum = A{1} / sum_exp(in, n, shift);
#pragma omp simd
        for (Index i = 0; i < n; ++i) put(out[i], math::exp(static_cast<A>(in[i]) - shift) * sum);
      }
    });
  });
}

void log_softmax(View y, View x) {
  check_same(y, x, kernel::LogSoftmax::name);
  dispatch_float(y.dtype, kernel::LogSoftmax::name, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    Index n = row_width(x.shape);
    each_row(x, [n, to = y.as<T>(), from = x.as<const T>()](Index r) {
      const T* in = from + r * n;
      A shift = largest(in, n), log_sum = math::log(sum_exp(in, n, shift));
#pragma omp simd
      for (Index i = 0; i < n; ++i) put(to[r * n + i], static_cast<A>(in[i]) - shift - log_sum);
    });
  });
}

/// dx = y (dy - sum of dy y), of the logarithm dx = dy - exp(y) sum of dy.
template <class Contract, bool log>
void softmax_backward(View dx, View dy, View y) {
  check_same(dx, dy, Contract::name);
  check_same(dx, y, Contract::name);
  dispatch_float(dx.dtype, Contract::name, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    Index n = row_width(dx.shape);
    each_row(dx, [n, to = dx.as<T>(), seed = dy.as<const T>(), out = y.as<const T>()](Index r) {
      const T *g = seed + r * n, *p = out + r * n;
      const A sum = sum_of<A>(
          n, [=](Index i) { return log ? static_cast<A>(g[i]) : static_cast<A>(g[i]) * static_cast<A>(p[i]); });
#pragma omp simd
      for (Index i = 0; i < n; ++i) {
        const A gradient = g[i], v = p[i];
        put(to[r * n + i], log ? gradient - math::exp(v) * sum : v * (gradient - sum));
      }
    });
  });
}

void check_labels(const View& label, const Shape& logits, Index ignore, std::string_view op) {
  Index rows = row_count(logits), classes = row_width(logits);
  check_label_type(label, logits, op);
  const Index* at = label.as<const Index>();
  for (Index r = 0; r < rows; ++r)
    check(at[r] == ignore || (at[r] >= 0 && at[r] < classes), ErrorKind::data, op,
          "row {} has label {}, but there are {} classes: labels must lie in [0, {})", r, at[r], classes, classes);
}

void cross_entropy(View loss, View log_p, View log_z, View x, View label, const CrossEntropyOptions& options) {
  constexpr auto op = kernel::CrossEntropy::name;
  check_same(log_p, x, op);
  check_labels(label, x.shape, options.ignore_index, op);
  check_loss(loss, x, op);
  if (options.z_loss != 0) check_loss(log_z, x, op);
  dispatch_float(x.dtype, op, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    Index n = row_width(x.shape);
    each_row(x, [n, out = loss.as<A>(), to = log_p.as<T>(), from = x.as<const T>(), labels = label.as<const Index>(),
                 ignore = options.ignore_index, smoothing = static_cast<A>(options.label_smoothing),
                 z = static_cast<A>(options.z_loss), log_zs = log_z.as<A>()](Index r) {
      const T* in = from + r * n;
      const A shift = largest(in, n), log_sum = math::log(sum_exp(in, n, shift));
      const bool counts = labels[r] != ignore;
      const A picked = counts ? static_cast<A>(in[labels[r]]) - shift - log_sum : A{};  // in may be written over below
      const auto log_of = [=](Index i) { return static_cast<A>(in[i]) - shift - log_sum; };
      const A total = smoothing == A{0} ? A{} : sum_of<A>(n, log_of);
#pragma omp simd
      for (Index i = 0; i < n; ++i) put(to[r * n + i], log_of(i));
      if (z != A{0}) log_zs[r] = shift + log_sum;
      if (!counts) {
        out[r] = A{};
        return;
      }
      out[r] = smoothing == A{0} ? -picked : -(A{1} - smoothing) * picked - smoothing / static_cast<A>(n) * total;
      if (z != A{0}) out[r] += z * (shift + log_sum) * (shift + log_sum);
    });
  });
}

void cross_entropy_backward(View dx, View log_p, View log_z, View label, View scale,
                            const CrossEntropyOptions& options) {
  constexpr auto op = kernel::CrossEntropyBackward::name;
  check_same(dx, log_p, op);
  check_labels(label, dx.shape, options.ignore_index, op);
  check_scale(scale, dx, op);
  if (options.z_loss != 0) check_loss(log_z, dx, op);
  dispatch_float(dx.dtype, op, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    Index n = row_width(dx.shape);
    each_row(dx, [n, to = dx.as<T>(), from = log_p.as<const T>(), labels = label.as<const Index>(), s = *scale.as<A>(),
                  ignore = options.ignore_index, smoothing = static_cast<A>(options.label_smoothing),
                  z = static_cast<A>(options.z_loss), log_zs = log_z.as<const A>()](Index r) {
      T* out = to + r * n;
      if (labels[r] == ignore) {
        std::fill_n(out, n, T(0.f));
        return;
      }
      A base = smoothing / static_cast<A>(n);
      const A by = z == A{0} ? A{1} : A{1} + A{2} * z * log_zs[r];
      A hit = math::exp(static_cast<A>(from[r * n + labels[r]])) * by - base - (A{1} - smoothing);
#pragma omp simd
      for (Index i = 0; i < n; ++i) put(out[i], (math::exp(static_cast<A>(from[r * n + i])) * by - base) * s);
      out[labels[r]] = static_cast<T>(hit * s);
    });
  });
}

const Kernel<kernel::Softmax> softmax_cpu{DeviceKind::cpu, softmax};
const Kernel<kernel::SoftmaxBackward> softmax_backward_cpu{DeviceKind::cpu,
                                                           softmax_backward<kernel::SoftmaxBackward, false>};
const Kernel<kernel::LogSoftmax> log_softmax_cpu{DeviceKind::cpu, log_softmax};
const Kernel<kernel::LogSoftmaxBackward> log_softmax_backward_cpu{DeviceKind::cpu,
                                                                  softmax_backward<kernel::LogSoftmaxBackward, true>};
const Kernel<kernel::CrossEntropy> cross_entropy_cpu{DeviceKind::cpu, cross_entropy};
const Kernel<kernel::CrossEntropyBackward> cross_entropy_backward_cpu{DeviceKind::cpu, cross_entropy_backward};

}  // namespace
}  // namespace trireme
