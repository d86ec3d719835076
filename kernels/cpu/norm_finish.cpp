// Batch norm between its moments and its application: per channel, so a plain loop.
#include <algorithm>
#include <cmath>

#include "kernels/contracts/norm.h"
#include "kernels/core/kernel.h"
#include "kernels/plans/merged_moments.h"
#include "kernels/plans/norm_checks.h"

namespace trireme {
namespace {

/// T: type of the statistics; R: of the running ones.
template <class T, class R>
void finish(View rstd, View running_mean, View running_var, View mean, View m2, double count, double eps,
            double momentum) {
  const T *mu = mean.as<T>(), *squares = m2.as<T>();
  T* inverse = rstd.as<T>();
  for (Index c = 0; c < rstd.numel(); ++c)
    inverse[c] = static_cast<T>(1 / std::sqrt(static_cast<double>(squares[c]) / count + eps));
  if (!running_mean) return;
  R *kept_mean = running_mean.as<R>(), *kept_var = running_var.as<R>();
  const double unbiased = std::max(count - 1, 1.0);
  for (Index c = 0; c < rstd.numel(); ++c) {
    const double m = kept_mean[c], v = kept_var[c];
    kept_mean[c] = static_cast<R>(m + momentum * (static_cast<double>(mu[c]) - m));
    kept_var[c] = static_cast<R>(v + momentum * (static_cast<double>(squares[c]) / unbiased - v));
  }
}

void batch_norm_finish(View rstd, View running_mean, View running_var, View mean, View m2, double count, double eps,
                       double momentum) {
  const bool wide = rstd.dtype == DType::f64, wide_running = running_mean && running_mean.dtype == DType::f64;
  const auto run = wide ? (wide_running ? finish<double, double> : finish<double, float>)
                        : (wide_running ? finish<float, double> : finish<float, float>);
  run(rstd, running_mean, running_var, mean, m2, count, eps, momentum);
}

template <class T>
void merge(View mean, View m2, View count, View parts) {
  const Index channels = mean.numel(), ranks = parts.shape[0], step = 1 + 2 * channels;
  const auto* p = parts.as<double>();
  T *to = mean.as<T>(), *squares = m2.as<T>();
  for (Index c = 0; c < channels; ++c) {
    MergedMoments all;
    for (Index r = 0; r < ranks; ++r) all.add(p[r * step], p[r * step + 1 + c], p[r * step + 1 + channels + c]);
    to[c] = static_cast<T>(all.mean), squares[c] = static_cast<T>(all.m2);
  }
  double rows = 0;
  for (Index r = 0; r < ranks; ++r) rows += p[r * step];
  *count.as<double>() = rows;
}

void batch_norm_merge(View mean, View m2, View count, View parts) {
  check_merge(mean, m2, count, parts, kernel::BatchNormMerge::name);
  const auto run = mean.dtype == DType::f64 ? merge<double> : merge<float>;
  run(mean, m2, count, parts);
}

const Kernel<kernel::BatchNormFinish> slot{DeviceKind::cpu, batch_norm_finish};
const Kernel<kernel::BatchNormMerge> merge_slot{DeviceKind::cpu, batch_norm_merge};

}  // namespace
}  // namespace trireme
