// CIFAR-10 and CIFAR-100 (Krizhevsky, 2009) in their binary version: records of one label byte (CIFAR-100: two, coarse
// and fine) and 3 x 32 x 32 pixels, one plane per colour.
#pragma once
#include "datasets/core/dataset.h"

namespace trireme {

/// The contents of a CIFAR file.
struct Cifar {
  std::vector<std::uint8_t> labels;  ///< one per record; CIFAR-100: the fine labels
  std::vector<std::uint8_t> pixels;  ///< [records, 32, 32, 3]
};
/// classes: 10 or 100. Throws Error with source and its size if bytes is not a whole number of records, and with the
/// record for a label outside [0, classes). Needs as much memory as bytes.
Cifar parse_cifar(std::span<const std::byte> bytes, Index classes, const std::string& source);

/// split: "train" or "test". root: folder of the .bin files, or its parent (which has cifar-10-batches-bin).
Dataset Cifar10(const std::string& split, const std::string& root = "");
/// As above, for CIFAR-100; the folder is cifar-100-binary.
Dataset Cifar100(const std::string& split, const std::string& root = "");

}  // namespace trireme
