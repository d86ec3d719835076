// SpikeDetector: detects sudden increases of the loss (run.spike).
#pragma once
#include <cstdint>

namespace trireme {

/// Compares losses with their running mean.
class SpikeDetector {
 public:
  /// factor: a loss above factor times the running mean is a spike; 0: off.
  explicit SpikeDetector(double factor) : factor_(factor) {}
  /// Checks a step's loss, which is equal on all ranks. Throws NonFiniteError for a spike, but never for the first 50
  /// losses.
  void look(double loss, std::int64_t step);
  void forget() {
    mean_ = 0;
    count_ = 0;
  }  ///< forgets all losses so far

 private:
  double factor_;
  double mean_ = 0;
  int count_ = 0;
};

}  // namespace trireme
