// Metrics of training: of a step, and of its epoch so far.
#pragma once
#include <cmath>
#include <cstdint>
#include <string_view>

#include "kernels/core/view.h"

namespace trireme {

/// Whether smaller values of this key of metrics.jsonl are better: losses, errors, times and memory.
inline bool smaller_is_better(std::string_view key) {
  for (const std::string_view end : {"_loss", "_perplexity", "_bits_per_byte", "_mae", "_mse", "_rmse"})
    if (key.ends_with(end)) return true;
  return key.starts_with("step_ms") || key == "memory_mb" || key == "wait_share";
}

/// Number of steps between records in metrics.jsonl.
inline constexpr std::int64_t record_every = 20;

/// Metrics of an epoch so far. The speed is of the part that this process trained; in virtual time, of the whole epoch.
struct EpochMetrics {
  std::int64_t epoch = 0,    ///< from 1
      step = 0;              ///< optimizer steps of the run
  double loss = 0,           ///< mean over the samples, each with the weights of its step
      accuracy = 0;          ///< in %, at the last exchange between ranks; 0 without classes
  double samples_per_s = 0;  ///< of all ranks together; per simulated second in virtual time
  double wait_share = 0;     ///< share of the time in which this rank waited for data, 0 to 1
  Index steps = 0;           ///< steps of this rank
  /// Durations of these steps in milliseconds, including data and messages.
  double step_mean = 0,  ///< mean
      step_p50 = 0,      ///< median
      step_p95 = 0,      ///< 95th percentile
      step_max = 0;      ///< longest
};
/// Metrics of an optimizer step.
struct StepMetrics {
  double loss = 0,         ///< of the global batch, or of this rank's worker (Step::trains_apart())
      lr = 0;              ///< learning rate
  double grad_norm = NAN;  ///< L2 norm of the gradient before clipping; NaN: unknown
  std::int64_t step = 0,   ///< optimizer steps of the run, including this one
      batch = 0;           ///< batches of this epoch, including this one
  std::int64_t epoch = 0;  ///< from 1
};

}  // namespace trireme
