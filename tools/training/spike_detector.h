// SpikeDetector: losses that jump (run.spike).
#pragma once
#include <cstdint>

namespace trireme {

class SpikeDetector {
 public:
  /// A loss of more than `factor` times the running mean of the last ones is a spike; 0: none is.
  explicit SpikeDetector(double factor) : factor_(factor) {}
  /// A step's loss, equal on all ranks. Throws NonFiniteError for a spike, of which there is none before 50 losses.
  void look(double loss, std::int64_t step);
  void forget() { mean_ = 0, count_ = 0; }  ///< all losses so far

 private:
  double factor_;
  double mean_ = 0;
  int count_ = 0;
};

}  // namespace trireme
