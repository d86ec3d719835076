// Encoded images (files of a folder, members of tar shards), and the dataset that decodes, crops and resizes them.
#pragma once
#include <cstddef>

#include "datasets/core/dataset.h"

namespace trireme {

/// Encoded images with labels, by number: files of a folder, members of tar shards.
class EncodedSource {
 public:
  virtual ~EncodedSource() = default;
  virtual std::string name() const = 0;                         ///< in messages: the folder, the shards
  virtual Index size() const = 0;                               ///< images
  virtual const std::vector<std::string>& classes() const = 0;  ///< names, in order of their label
  virtual std::int64_t label(Index id) const = 0;               ///< in [0, classes().size())
  virtual std::string describe(Index id) const = 0;             ///< "root/cat/7.jpg", "shard-000001.tar: cat/7.jpg"
  virtual std::string fingerprint() const { return {}; }        ///< as DatasetSource's
  /// The image's file bytes (replaces what was in bytes). Called from several threads.
  virtual void read(Index id, std::vector<std::byte>& bytes) const = 0;
};

/// What becomes of an image that cannot be read or decoded: an Error that names it, or the next good one by number (the
/// first after the last; at most 1000 are tried) takes its place, label included. So a batch keeps its size, and what
/// is trained remains a function of the files, the seed and the epoch, on any number of ranks; but the next good one
/// counts twice, in evaluation too. DatasetSource::bad() tells how often that happened.
enum class OnBad { stop, skip };

/// Options of Images().
struct ImagesOptions {
  Index size = 224;            ///< samples are [size, size, 3]
  bool augment = false;        ///< random crop and flip (training), or the centre (evaluation)
  double central = 0.875;      ///< evaluation: the crop's side over the resized image's short side (224 of 256)
  OnBad on_bad = OnBad::stop;  ///< what becomes of an image that cannot be read or decoded
  /// ImageNet's, as torchvision's reference scripts have them.
  PixelScale scale = {{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};
};
/// Decodes, crops and resizes to [size, size, 3] u8. With augment: a random-resized crop (8 to 100 % of the area, sides
/// 3:4 to 4:3; Szegedy et al., "Going Deeper with Convolutions", section 6) and a horizontal flip, both drawn from
/// (seed, epoch, id). Without: the short side is resized to size / central and the centre is cropped. Throws Error
/// for a size below 1 and a central outside (0, 1]; when read, naming the sample and its file, for an image that cannot
/// be decoded.
Dataset Images(std::unique_ptr<const EncodedSource>, const ImagesOptions& = {});

}  // namespace trireme
