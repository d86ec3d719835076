// Numbers of a training: of a step, and of the epoch that it is in.
#pragma once
#include <cmath>
#include <cstdint>
#include <string_view>

#include "kernels/core/view.h"

namespace trireme {

/// Whether smaller values of this key of metrics.jsonl are the better ones: of losses, errors, times and memory.
inline bool smaller_is_better(std::string_view key) {
  for (const std::string_view end : {"_loss", "_perplexity", "_bits_per_byte", "_mae", "_mse", "_rmse"})
    if (key.ends_with(end)) return true;
  return key.starts_with("step_ms") || key == "memory_mb" || key == "wait_share";
}

/// metrics.jsonl gets a record each time that this many steps are done.
inline constexpr std::int64_t record_every = 20;

/// Of an epoch so far; the speed is that of the part trained by this process, in virtual time of the whole.
struct EpochMetrics {
  std::int64_t epoch = 0, step = 0;  ///< from 1; optimizer steps in all
  double loss = 0,                   ///< mean over the samples, of the weights as they were
      accuracy = 0;          ///< of labels, %, as of the last time that ranks came together; 0 of data without classes
  double samples_per_s = 0;  ///< of all ranks; simulated seconds in virtual time
  double wait_share = 0;     ///< of the time, in which this rank waited for data: 0 to 1
  Index steps = 0;           ///< of this rank
  /// Milliseconds of these, data and messages included: mean, median, the 95th percentile, the longest.
  double step_mean = 0, step_p50 = 0, step_p95 = 0, step_max = 0;
};
/// Of an optimizer step.
struct StepMetrics {
  double loss = 0, lr = 0;           ///< of the global batch, or of this rank's worker (Step::trains_apart())
  double grad_norm = NAN;            ///< of this step's gradient before clipping; NaN: it is not known
  std::int64_t step = 0, batch = 0;  ///< optimizer steps in all, batches of this epoch, this one included
  std::int64_t epoch = 0;            ///< from 1
};

}  // namespace trireme
