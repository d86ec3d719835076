// Data sets by name.
#pragma once
#include "datasets/formats/synthetic.h"
#include "datasets/images/images.h"
#include "datasets/volumes/phantoms.h"
#include "datasets/volumes/volume_pairs.h"

namespace trireme {

/// Options of open_dataset(); each data set uses the options that it names.
struct OpenOptions {
  std::string root = {};    ///< folder (or packed file) of the data; empty: the installed location
  std::string shards = {},  ///< tar: pattern of the training split's names (expand_shards)
      val_shards = {};      ///< tar: pattern of the test split's names
  Index classes = 0;        ///< tar: number of classes; 0: largest label of the training shards plus one
  Index image_size =
      0;  ///< imagenet, tar, packed: side of the square images in pixels; 0: 224 (packed: at most the stored size)
  bool augment = true;              ///< random crops and flips in the training split, if the data set supports them
  double central = 0.875;           ///< imagenet, tar: see ImagesOptions
  OnBad on_bad = OnBad::stop;       ///< imagenet, tar: treatment of an image that cannot be read
  Index context = 0;                ///< text: tokens per window; 0: 256
  std::string tokenizer = "bytes";  ///< text: "bytes", "chars" or a path (open_tokenizer). For a token file "bytes"
                                    ///< means no tokenizer: its vocabulary is its largest id plus one
  double test_split = 0.1;          ///< text: share of the last part, the test split, of a text without separate files
  /// Share of the training split that forms the split "validation" instead, in [0, 1). Pictures: samples chosen by a
  /// hash of their ids, the same for every seed. text: the last part before the test split; volumes, tar: the last
  /// volumes and shards. synthetic, phantoms: further samples, and the training split stays whole.
  double validation_split = 0;
  Index windows = 0;                ///< text: windows per training epoch; 0: as many as fit without overlap
  Index separator = -1;             ///< text: TokensOptions::separator
  SyntheticOptions synthetic = {};  ///< synthetic: of the training split; the test split has different samples
  PhantomsOptions phantoms = {};    ///< phantoms: all options except `test`
  VolumePairsOptions volumes = {};  ///< volumes: all options except root and `test`
  Index test_samples = 128;         ///< phantoms: PhantomsOptions::samples of the test split
};
/// Opens a data set by name. split: "train", "validation" (see validation_split) or "test". Names: "mnist",
/// "fashion_mnist", "cifar10", "cifar100" (cifar.h), "imagenet" (image_folder.h), "tar" (webdataset.h), "packed"
/// (packed.h), "text" (tokens.h: root is a text, a token file or a folder of such files; windows are random in the
/// training split and strided in the test split), "synthetic", "phantoms" (phantoms.h), "volumes" (volume_pairs.h: root
/// is a folder of pairs). Throws Error with the list of names for another name.
Dataset open_dataset(const std::string& name, const std::string& split, const OpenOptions& = {});

}  // namespace trireme
