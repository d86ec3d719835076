// Softmax and cross entropy over the last axis, one team of threads per row. The maximum is subtracted before exp.
#include "kernels/contracts/loss.h"

#include <cmath>

#include "kernels/core/kernel.h"
#include "kernels/cuda/team.cuh"
#include "kernels/plans/loss_checks.h"

namespace trireme::gpu {
namespace {

/// Of a row: its maximum (ignoring NaN, which exp finds), and the sum of exp(x - maximum).
template <class A>
struct Exponents {
  A shift, sum;
};
template <class T, int n>
__device__ Exponents<Accumulator<T>> exponents(const Team& team, const Row<T, n>& row) {
  using A = Accumulator<T>;
  constexpr A lowest = -std::numeric_limits<A>::infinity();
  A shift = lowest, sum = 0;
  row.each([&](Index, const Pack<T, n>& p) {
#pragma unroll
    for (int j = 0; j < n; ++j) shift = LargerNumber{}(shift, wide(p.v[j]));
  });
  shift = team.combine(shift, lowest, LargerNumber{});
  row.each([&](Index, const Pack<T, n>& p) {
#pragma unroll
    for (int j = 0; j < n; ++j) sum += std::exp(wide(p.v[j]) - shift);
  });
  return {shift, team.sum(sum)};
}

template <class T>
struct Softmax {
  T* y;  ///< may be x
  const T* x;
  Index width;
  bool log;

  template <int n>
  __device__ void operator()(const Team& team, Count<n>, Index r) const {
    using A = Accumulator<T>;
    const Row<T, n> row(team, x + r * width, width);
    const Exponents<A> e = exponents(team, row);
    const A last = log ? std::log(e.sum) : A(1) / e.sum;
    row.each([&, to = y + r * width](Index i, const Pack<T, n>& p) {
      Pack<T, n> out;
#pragma unroll
      for (int j = 0; j < n; ++j) {
        const A v = wide(p.v[j]) - e.shift;
        out.v[j] = rounded<T>(log ? v - last : std::exp(v) * last);
      }
      store(to + i, out);
    });
  }
};

/// dx = y (dy - sum of dy y), of the logarithm dx = dy - exp(y) sum of dy.
template <class T>
struct SoftmaxBackward {
  T* dx;  ///< may be dy or y
  const T *dy, *y;
  Index width;
  bool log;

  template <int n>
  __device__ void operator()(const Team& team, Count<n>, Index r) const {
    using A = Accumulator<T>;
    const Row<T, n> seed(team, dy + r * width, width), kept(team, y + r * width, width);
    A sum = 0;
    seed.each_with(kept, [&](Index, const Pack<T, n>& g, const Pack<T, n>& p) {
#pragma unroll
      for (int j = 0; j < n; ++j) sum += log ? wide(g.v[j]) : wide(g.v[j]) * wide(p.v[j]);
    });
    sum = team.sum(sum);
    seed.each_with(kept, [&, to = dx + r * width](Index i, const Pack<T, n>& g, const Pack<T, n>& p) {
      Pack<T, n> out;
#pragma unroll
      for (int j = 0; j < n; ++j) {
        const A gradient = wide(g.v[j]), v = wide(p.v[j]);
        out.v[j] = rounded<T>(log ? gradient - std::exp(v) * sum : v * (gradient - sum));
      }
      store(to + i, out);
    });
  }
};

void softmax_by(std::string_view op, const View& y, const View& x, bool log) {
  check_same(y, x, op);
  const On on(y.device, op);
  dispatch_device_float(y.dtype, op, [&](auto t) {
    using T = decltype(t);
    const Index width = row_width(x.shape);
    each_row<T>(on, row_count(x.shape), width, aligned(y.data, x.data),
                Softmax<T>{y.as<T>(), x.as<const T>(), width, log});
  });
}
void softmax_backward_by(std::string_view op, const View& dx, const View& dy, const View& y, bool log) {
  check_same(dx, dy, op);
  check_same(dx, y, op);
  const On on(dx.device, op);
  dispatch_device_float(dx.dtype, op, [&](auto t) {
    using T = decltype(t);
    const Index width = row_width(dx.shape);
    each_row<T>(on, row_count(dx.shape), width, aligned(dx.data, dy.data, y.data),
                SoftmaxBackward<T>{dx.as<T>(), dy.as<const T>(), y.as<const T>(), width, log});
  });
}
template <class Contract, bool log>
void softmax(View y, View x) {
  softmax_by(Contract::name, y, x, log);
}
template <class Contract, bool log>
void softmax_backward(View dx, View dy, View y) {
  softmax_backward_by(Contract::name, dx, dy, y, log);
}

/// The labels of rows. A label that is no class sets a fault; the host gets the first one.
struct Labels {
  const Index* label;
  Index classes, ignore;
  Fault* fault;

  struct Label {
    Index at;
    bool ignored, wrong;
  };
  __device__ Label of(Index row, bool report) const {
    const Index at = label[row];
    const bool ignored = at == ignore, wrong = !ignored && (at < 0 || at >= classes);
    if (wrong && report && atomicCAS(&fault->set, 0, 1) == 0) {
      fault->row = row;
      fault->label = at;
      fault->classes = classes;
    }
    return {at, ignored, wrong};
  }
};

template <class T>
struct CrossEntropy {
  using A = Accumulator<T>;
  A* loss;
  T* log_p;  ///< may be x
  const T* x;
  Labels labels;
  A smoothing, z;
  A* log_z;  ///< read only with a z

  template <int n>
  __device__ void operator()(const Team& team, Count<n>, Index r) const {
    const Index width = labels.classes;
    const Row<T, n> row(team, x + r * width, width);
    const Exponents<A> e = exponents(team, row);
    const A log_sum = std::log(e.sum);
    const auto label = labels.of(r, team.rank() == 0);
    A total = 0, picked = 0;
    row.each([&, at = label.at, to = log_p + r * width](Index i, const Pack<T, n>& p) {
      Pack<T, n> out;
#pragma unroll
      for (int j = 0; j < n; ++j) {
        const A v = wide(p.v[j]) - e.shift - log_sum;
        out.v[j] = rounded<T>(v);
        total += v;
        if (i + j == at) picked = v;
      }
      store(to + i, out);
    });
    picked = team.sum(picked);
    if (smoothing != A(0)) total = team.sum(total);
    if (team.rank() != 0) return;
    loss[r] = loss_of(label, picked, total, e.shift + log_sum);
    if (z != A(0)) log_z[r] = e.shift + log_sum;
  }

 private:
  __device__ A loss_of(const Labels::Label& label, A picked, A total, A log_of_sum) const {
    if (label.ignored) return 0;
    if (label.wrong) return std::numeric_limits<A>::quiet_NaN();
    const A more = z == A(0) ? A(0) : z * log_of_sum * log_of_sum;
    if (smoothing == A(0)) return more - picked;
    return more - (A(1) - smoothing) * picked - smoothing / static_cast<A>(labels.classes) * total;
  }
};

void cross_entropy(View loss, View log_p, View log_z, View x, View label, const CrossEntropyOptions& options) {
  constexpr auto op = kernel::CrossEntropy::name;
  check_same(log_p, x, op);
  check_label_type(label, x.shape, op);
  check_loss(loss, x, op);
  if (options.z_loss != 0) check_loss(log_z, x, op);
  const On on(x.device, op);
  const Labels labels{label.as<const Index>(), row_width(x.shape), options.ignore_index, on.fault()};
  dispatch_device_float(x.dtype, op, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    each_row<T>(
        on, row_count(x.shape), labels.classes, aligned(log_p.data, x.data),
        CrossEntropy<T>{loss.as<A>(), log_p.as<T>(), x.as<const T>(), labels, static_cast<A>(options.label_smoothing),
                        static_cast<A>(options.z_loss), log_z.as<A>()});
  });
}

template <class T>
struct CrossEntropyBackward {
  using A = Accumulator<T>;
  T* dx;  ///< may be log_p
  const T* log_p;
  Labels labels;
  const A* scale;
  A smoothing, z;
  const A* log_z;  ///< read only with a z

  template <int n>
  __device__ void operator()(const Team& team, Count<n>, Index r) const {
    const Index width = labels.classes;
    const Row<T, n> row(team, log_p + r * width, width);
    const auto [at, ignored, wrong] = labels.of(r, team.rank() == 0);
    const A base = smoothing / static_cast<A>(width), hit = base + (A(1) - smoothing);
    const A by = z == A(0) ? A(1) : A(1) + A(2) * z * log_z[r];
    const A s = wrong ? std::numeric_limits<A>::quiet_NaN() : *scale;
    row.each([&, at = at, none = ignored, to = dx + r * width](Index i, const Pack<T, n>& p) {
      Pack<T, n> out;
#pragma unroll
      for (int j = 0; j < n; ++j) {
        const A v = (std::exp(wide(p.v[j])) * by - (i + j == at ? hit : base)) * s;
        out.v[j] = rounded<T>(none ? A(0) : v);
      }
      store(to + i, out);
    });
  }
};

void cross_entropy_backward(View dx, View log_p, View log_z, View label, View scale,
                            const CrossEntropyOptions& options) {
  constexpr auto op = kernel::CrossEntropyBackward::name;
  check_same(dx, log_p, op);
  check_label_type(label, dx.shape, op);
  check_scale(scale, dx, op);
  if (options.z_loss != 0) check_loss(log_z, dx, op);
  const On on(dx.device, op);
  const Labels labels{label.as<const Index>(), row_width(dx.shape), options.ignore_index, on.fault()};
  dispatch_device_float(dx.dtype, op, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    each_row<T>(on, row_count(dx.shape), labels.classes, aligned(dx.data, log_p.data),
                CrossEntropyBackward<T>{dx.as<T>(), log_p.as<const T>(), labels, scale.as<const A>(),
                                        static_cast<A>(options.label_smoothing), static_cast<A>(options.z_loss),
                                        log_z.as<const A>()});
  });
}

const Kernel<kernel::Softmax> softmax_cuda{DeviceKind::cuda, softmax<kernel::Softmax, false>};
const Kernel<kernel::LogSoftmax> log_softmax_cuda{DeviceKind::cuda, softmax<kernel::LogSoftmax, true>};
const Kernel<kernel::SoftmaxBackward> softmax_backward_cuda{DeviceKind::cuda,
                                                            softmax_backward<kernel::SoftmaxBackward, false>};
const Kernel<kernel::LogSoftmaxBackward> log_softmax_backward_cuda{DeviceKind::cuda,
                                                                   softmax_backward<kernel::LogSoftmaxBackward, true>};
const Kernel<kernel::CrossEntropy> cross_entropy_cuda{DeviceKind::cuda, cross_entropy};
const Kernel<kernel::CrossEntropyBackward> cross_entropy_backward_cuda{DeviceKind::cuda, cross_entropy_backward};

}  // namespace
}  // namespace trireme::gpu
