// InMemory: a data set of pictures in memory.
#pragma once
#include "datasets/core/dataset.h"

namespace trireme {

/// The arrays of InMemory().
struct InMemoryOptions {
  std::string name;                  ///< name in messages and results
  Shape shape;                       ///< shape of one sample, channels last
  Index classes = 0;                 ///< labels are in [0, classes); at most 256
  PixelScale scale = {};             ///< default: pixels / 255, in [0, 1]
  std::vector<std::uint8_t> pixels;  ///< [samples, shape...], row-major
  std::vector<std::uint8_t> labels;  ///< [samples], each in [0, classes)
};
/// Samples from arrays. Throws Error for a label outside [0, classes), and for different numbers of samples in pixels
/// and labels.
Dataset InMemory(InMemoryOptions);

}  // namespace trireme
