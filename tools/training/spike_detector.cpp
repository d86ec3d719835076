#include "tools/training/spike_detector.h"

#include <fmt/format.h>

#include <algorithm>

#include "parallel/runtime/step.h"

namespace trireme {

void SpikeDetector::look(double loss, std::int64_t step) {
  if (factor_ <= 0) return;
  constexpr int least = 50;
  if (count_ >= least && loss > factor_ * mean_)
    throw NonFiniteError(
        fmt::format("step {}: loss is {:.4g}, {:.1f} times its mean of {:.4g}", step, loss, loss / mean_, mean_),
        std::source_location::current());
  mean_ += (loss - mean_) / std::min(++count_, least);
}

}  // namespace trireme
