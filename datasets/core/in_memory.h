// Data sets that are held in memory.
#pragma once
#include "datasets/core/dataset.h"

namespace trireme {

/// The arrays of InMemory().
struct InMemoryOptions {
  std::string name;                  ///< in messages and results
  Shape shape;                       ///< of one sample, channels last
  Index classes = 0;                 ///< labels lie in [0, classes); u8 labels reach 256 classes
  PixelScale scale = {};             ///< default: pixels / 255, in [0, 1]
  std::vector<std::uint8_t> pixels;  ///< [samples, shape...], row-major
  std::vector<std::uint8_t> labels;  ///< [samples], each in [0, classes)
};
/// Samples from arrays. Throws Error for a label outside [0, classes), and when pixels and labels are not those of
/// equally many samples.
Dataset InMemory(InMemoryOptions);

}  // namespace trireme
