// Data sets by name.
#pragma once
#include "datasets/formats/synthetic.h"
#include "datasets/images/images.h"
#include "datasets/volumes/phantoms.h"
#include "datasets/volumes/volume_pairs.h"

namespace trireme {

/// What open_dataset() needs beside a name and a split ("train" or "test"); each dataset takes what it knows.
struct OpenOptions {
  std::string root = {};       ///< the folder (or packed file) of its files; empty: where they were installed
  std::string shards = {},     ///< tar: pattern of the training split's names (expand_shards)
      val_shards = {};         ///< tar: pattern of the test split's names
  Index classes = 0;           ///< tar: how many; 0: the training shards' largest label and one
  Index image_size = 0;        ///< imagenet, tar, packed: side of the square images; 0: 224 (packed: at most its own)
  bool augment = true;         ///< random crops and flips for the training split, where the dataset has them
  double central = 0.875;      ///< imagenet, tar: see ImagesOptions
  OnBad on_bad = OnBad::stop;  ///< imagenet, tar: what becomes of an image that cannot be read
  Index context = 0;           ///< text: tokens of a window; 0: 256
  std::string tokenizer = "bytes";  ///< text: "bytes", "chars" or a path (open_tokenizer); of a token file "bytes"
                                    ///< stands for none: its vocabulary is its largest id and one
  double validation = 0.1;  ///< text: the last part, which is the test split, of a text that is not in two files
  Index windows = 0;        ///< text: windows of an epoch of the training split; 0: as many as fit side by side
  SyntheticOptions synthetic = {};  ///< synthetic: of the training split; the test split has other samples
  PhantomsOptions phantoms = {};    ///< phantoms: but for what a split says
  VolumePairsOptions volumes = {};  ///< volumes: but for root, and for what a split says
  Index test_samples = 128;         ///< phantoms: PhantomsOptions::samples of the test split
};
/// By name: "mnist", "fashion_mnist", "cifar10", "cifar100" (cifar.h), "imagenet" (image_folder.h), "tar"
/// (webdataset.h), "packed" (packed.h), "text" (tokens.h: root is a text, a token file or a folder of either; windows
/// of the training split are random ones, of the test split strided), "synthetic", "phantoms" (phantoms.h), "volumes"
/// (volume_pairs.h: root is a folder of pairs). Throws Error with the list for
/// another name.
Dataset open_dataset(const std::string& name, const std::string& split, const OpenOptions& = {});

}  // namespace trireme
