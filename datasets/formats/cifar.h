// CIFAR-10 and CIFAR-100 (Krizhevsky, 2009) in their binary version: records of one label byte (CIFAR-100: two, coarse
// and fine) and 3 x 32 x 32 pixels, one plane per colour.
#pragma once
#include "datasets/core/dataset.h"

namespace trireme {

struct Cifar {
  std::vector<std::uint8_t> labels;  ///< of CIFAR-100 the fine ones
  std::vector<std::uint8_t> pixels;  ///< [records, 32, 32, 3]
};
/// classes: 10 or 100. Throws Error naming source, its size or the record for bytes that are no whole number of records
/// and for labels outside [0, classes). Takes as much memory as bytes.
Cifar parse_cifar(std::span<const std::byte> bytes, Index classes, const std::string& source);

/// split: "train" or "test". root: the folder of the .bin files, or the one that holds cifar-10-batches-bin
/// (cifar-100-binary).
Dataset Cifar10(const std::string& split, const std::string& root = "");
Dataset Cifar100(const std::string& split, const std::string& root = "");

}  // namespace trireme
