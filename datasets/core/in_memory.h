// Data sets that are held in memory.
#pragma once
#include "datasets/core/dataset.h"

namespace trireme {

struct InMemoryOptions {
  std::string name;  ///< in messages and results
  Shape shape;       ///< of one sample, channels last
  Index classes = 0;
  PixelScale scale = {};
  std::vector<std::uint8_t> pixels;  ///< [samples, shape...], row-major
  std::vector<std::uint8_t> labels;  ///< [samples], each in [0, classes)
};
/// Samples from arrays. Throws Error for a label outside [0, classes), and when pixels and labels are not those of
/// equally many samples.
Dataset InMemory(InMemoryOptions);

}  // namespace trireme
