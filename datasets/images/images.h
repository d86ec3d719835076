// Images: a data set that decodes, crops and resizes encoded images (files of a folder, members of tar shards).
#pragma once
#include <cstddef>

#include "datasets/core/dataset.h"

namespace trireme {

/// Encoded images with labels, by number. A format derives from it.
class EncodedSource {
 public:
  virtual ~EncodedSource() = default;
  virtual std::string name() const = 0;                         ///< for messages: the folder, the shards
  virtual Index size() const = 0;                               ///< number of images
  virtual const std::vector<std::string>& classes() const = 0;  ///< class names in label order
  virtual std::int64_t label(Index id) const = 0;               ///< in [0, classes().size())
  virtual std::string describe(Index id) const = 0;             ///< "root/cat/7.jpg", "shard-000001.tar: cat/7.jpg"
  virtual std::string fingerprint() const { return {}; }        ///< as DatasetSource::fingerprint()
  /// Replaces bytes by the image's file contents. Several threads call it.
  virtual void read(Index id, std::vector<std::byte>& bytes) const = 0;
};

/// The treatment of an image that cannot be read or decoded. stop: an Error that names it. skip: the next good image by
/// number replaces it, with its label (after the last comes the first; at most 1000 are tried). So batches keep their
/// size, and training remains a function of files, seed and epoch on any number of ranks. But the replacement counts
/// twice, also in evaluation. DatasetSource::bad() counts replacements.
enum class OnBad { stop, skip };

/// Options of Images().
struct ImagesOptions {
  Index size = 224;            ///< pixels; samples are [size, size, 3]
  bool augment = false;        ///< true: random crop and flip (training); false: centre (evaluation)
  double central = 0.875;      ///< evaluation: the crop's side over the resized image's short side (224 of 256)
  OnBad on_bad = OnBad::stop;  ///< treatment of an image that cannot be read or decoded
  /// Mean and std of pixels; default: ImageNet's, as in torchvision's reference scripts.
  PixelScale scale = {{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};
};
/// Decodes, crops and resizes images to [size, size, 3] u8. With augment: a random-resized crop (8 to 100 % of the
/// area, sides 3:4 to 4:3; Szegedy et al., "Going Deeper with Convolutions", section 6) and a horizontal flip, both
/// drawn from (seed, epoch, id). Without: the short side is resized to size / central and the centre is cropped. Throws
/// Error for a size below 1 and a central outside (0, 1]. A read throws Error with the sample and its file for an image
/// that cannot be decoded.
Dataset Images(std::unique_ptr<const EncodedSource>, const ImagesOptions& = {});

}  // namespace trireme
