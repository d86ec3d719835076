// Random changes of images while they are trained on: torchvision.transforms. Pictures stay u8 until the Loader's last
// moment, so that a list of these is applied by its worker threads, and ends with with_scale() for Normalize.
//   auto train = transformed(data, {RandomCrop{32, 32, 4}, RandomHorizontalFlip{}, ColorJitter{.brightness = 0.4}});
#pragma once
#include <functional>

#include "datasets/images/functional.h"
#include "kernels/core/random.h"

namespace trireme {

/// The random numbers of one transform for one sample in one epoch: a function of the key, the sample's id and the
/// transform's place in the list, the same on one rank and on many, whoever reads what first.
class TransformRandom {
 public:
  TransformRandom(const AugmentKey& key, Index id, Index place, Index view = 0);
  double uniform();                         ///< in [0, 1)
  double uniform(double low, double high);  ///< in [low, high)
  Index below(Index n);                     ///< 0, ..., n - 1, equally often. Throws Error for n < 1
  bool chance(double p);                    ///< true with probability p. Throws Error for one outside [0, 1]
  std::array<std::uint32_t, 4> words();     ///< the next 128 bits, of which the others are made

 private:
  Philox random_;
  std::uint64_t id_, next_;
};

/// A change of an image: a lambda or a struct with operator(), called from several threads. What it draws comes from
/// its second argument alone.
using ImageTransform = std::function<Image(Image, TransformRandom&)>;

/// The samples of data, [height, width, channels], each after these changes, in their order (torchvision's Compose).
/// With random ones for training only. Throws Error for samples of another rank and for what a transform throws at the
/// first sample, which is read to learn the result's shape; a read does so when another sample's is not the same. view:
/// another number in [0, 65536) draws other numbers, for a second view of the same data (contrastive learning).
Dataset transformed(Dataset data, std::vector<ImageTransform> transforms, Index view = 0);

/// To height x width, bilinear and antialiased; width 0: the shorter side to `height`, the other one in proportion.
struct Resize {
  Index height = 0, width = 0;
  Image operator()(Image, TransformRandom&) const;
};
/// The middle, black where it is larger than the image; width 0: a square.
struct CenterCrop {
  Index height = 0, width = 0;
  Image operator()(Image, TransformRandom&) const;
};
struct Pad {
  Padding padding = {};
  std::uint8_t fill = 0;  ///< level of all channels where the mode is constant
  PaddingMode padding_mode = PaddingMode::constant;
  Image operator()(Image, TransformRandom&) const;
};
/// A part of the padded image, anywhere in it; width 0: a square. Throws Error where it is larger than that.
struct RandomCrop {
  Index height = 0, width = 0;
  Padding padding = {};
  std::uint8_t fill = 0;
  PaddingMode padding_mode = PaddingMode::constant;
  Image operator()(Image, TransformRandom&) const;
};
/// A part of random area and sides, resized to height x width (Szegedy et al. 2014, arXiv 1409.4842, section 6); width
/// 0: to a square.
struct RandomResizedCrop {
  Index height = 0, width = 0;
  Interval scale = crop_scale,  ///< of the area, as a share of the image's
      ratio = crop_ratio;       ///< of width / height
  Image operator()(Image, TransformRandom&) const;
};
struct RandomHorizontalFlip {
  double p = 0.5;  ///< how often
  Image operator()(Image, TransformRandom&) const;
};
struct RandomVerticalFlip {
  double p = 0.5;  ///< how often
  Image operator()(Image, TransformRandom&) const;
};
/// By an angle in [-degrees, degrees) about the centre, bilinear, black outside.
struct RandomRotation {
  double degrees = 0;
  Image operator()(Image, TransformRandom&) const;
};
/// Brightness, contrast and saturation times a factor in [max(0, 1 - v), 1 + v), and [-hue, hue) added to the hue, in
/// random order; 0: not at all.
struct ColorJitter {
  double brightness = 0, contrast = 0, saturation = 0;
  double hue = 0;  ///< at most 0.5
  Image operator()(Image, TransformRandom&) const;
};
struct Grayscale {
  Index num_output_channels = 1;  ///< or 3
  Image operator()(Image, TransformRandom&) const;
};
struct GaussianBlur {
  Index kernel_size = 3;      ///< odd, in pixels
  Interval sigma = {0.1, 2};  ///< in pixels
  Image operator()(Image, TransformRandom&) const;
};
/// Fills a rectangle (Zhong et al. 2017, arXiv 1708.04896); none where ten do not fit. Of levels, before they are
/// normalized: torchvision's 0 behind Normalize is 255 times the mean here.
struct RandomErasing {
  double p = 0.5;                         ///< how often
  Interval scale = {0.02, 0.33},          ///< of the area, as a share of the image's
      ratio = {0.3, 3.3};                 ///< of height / width
  std::vector<std::uint8_t> value = {0};  ///< the level, or one per channel
  Image operator()(Image, TransformRandom&) const;
};

}  // namespace trireme
