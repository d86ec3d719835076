// The datasets that ship, and the reader of their format. Each throws Error naming the file and what is wrong
// with it.
#pragma once
#include "datasets/images/encoded.h"

namespace trireme {

/// IDX (LeCun): big-endian magic 0 0 type rank, extents, row-major values. u8 only. Plain or gzip bytes.
struct Idx {
  std::vector<Index> extents;
  std::vector<std::uint8_t> values;
};
/// source names the bytes in messages. Refuses wrong magic, other types, truncated or trailing data, absurd
/// sizes (memory, the input included, stays within 64 MB + 4x the input).
Idx parse_idx(std::span<const std::byte> bytes, const std::string& source);
Idx read_idx(const std::string& path);

/// split: "train" or "test". root: folder of the four files (plain or .gz); "" looks in TRIREME_DATA/mnist,
/// the installed data folder, then the source tree's datasets/mnist.
Dataset Mnist(const std::string& split, const std::string& root = "");
/// Zalando's Fashion-MNIST (arXiv 1708.07747), by default from Debian's package dataset-fashion-mnist.
Dataset FashionMnist(const std::string& split, const std::string& root = "");

struct SyntheticOptions {
  Index size = 1024;
  Shape shape{28, 28, 1};
  Index classes = 10;
  std::uint64_t seed = 0;
  Index first = 0;  ///< number of the first sample: datasets that do not overlap share classes, not samples
};
/// Learnable noise: each class has a random prototype; sample id is a pure function of (seed, first + id).
Dataset Synthetic(const SyntheticOptions& = {});
/// The first n samples of another dataset.
Dataset head(Dataset, Index n);

/// What open_dataset() needs beside a name and a split ("train" or "test"); each dataset takes what it knows.
struct OpenOptions {
  std::string root = {};  ///< the folder (or packed file) of its files; empty: where they were installed
  std::string shards = {}, val_shards = {};  ///< tar: patterns of names (expand_shards) of the training and test split
  Index classes = 0;                         ///< tar: how many; 0: the training shards' largest label and one
  Index image_size = 0;                      ///< imagenet, tar, packed: side of the square images; 0: 224
  bool augment = true;     ///< random crops and flips for the training split, where the dataset has them
  double central = 0.875;  ///< imagenet, tar: see ImagesOptions
  OnBad on_bad = OnBad::stop;
  SyntheticOptions synthetic = {};
};
/// By name: "mnist", "fashion_mnist", "cifar10", "cifar100" (cifar.h), "imagenet" (image_folder.h), "tar"
/// (webdataset.h), "packed" (packed.h), "synthetic". Throws Error with the list for another name.
Dataset open_dataset(const std::string& name, const std::string& split, const OpenOptions& = {});

}  // namespace trireme
