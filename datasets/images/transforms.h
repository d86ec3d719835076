// Random augmentation of images during training, as torchvision.transforms. Images stay u8: the worker threads of the
// Loader apply the transforms, and with_scale() takes the place of ToTensor and Normalize.
//   auto train = transformed(data, {RandomCrop{32, 32, 4}, RandomHorizontalFlip{}, ColorJitter{.brightness = 0.4}});
#pragma once
#include <functional>

#include "datasets/images/functional.h"
#include "kernels/core/random.h"

namespace trireme {

/// Random numbers of one transform for one sample in one epoch. They are a function of the key, the sample's id and the
/// transform's place in the list, and so do not depend on the number of ranks or on the order of reading.
class TransformRandom {
 public:
  /// key: seed and epoch. id: of the sample. place: of the transform in its list. view: see transformed().
  TransformRandom(const AugmentKey& key, Index id, Index place, Index view = 0);
  double uniform();                         ///< in [0, 1)
  double uniform(double low, double high);  ///< in [low, high)
  Index below(Index n);                     ///< uniform in 0, ..., n - 1. Throws Error for n < 1
  bool chance(double p);                    ///< true with probability p. Throws Error for p outside [0, 1]
  std::array<std::uint32_t, 4> words();     ///< the next 128 random bits

 private:
  Philox random_;
  std::uint64_t id_, next_;
};

/// A change of an image: a lambda or a struct with operator(), called from several threads at once. It must take all
/// its random numbers from its second argument.
using ImageTransform = std::function<Image(Image, TransformRandom&)>;

/// The samples of data, [height, width, channels], after the transforms in their order (torchvision's Compose). Use
/// random transforms for training data only. The first sample is read to learn the shape of the result. Throws Error
/// for samples that are no images, and whatever a transform throws for the first sample; a later read throws Error for
/// a sample of another shape. view, in [0, 65536): another number draws other random numbers, for a second view of the
/// same data (contrastive learning).
Dataset transformed(Dataset data, std::vector<ImageTransform> transforms, Index view = 0);

/// torchvision.transforms.Resize: to height x width, bilinear and antialiased.
struct Resize {
  Index height = 0,  ///< in pixels, at least 1
      width = 0;     ///< in pixels; 0: `height` is for the shorter side, the other side keeps the proportion
  /// The resized image; draws nothing.
  Image operator()(Image, TransformRandom&) const;
};
/// torchvision.transforms.CenterCrop: the middle of the image, black where the crop is larger than the image.
struct CenterCrop {
  Index height = 0,  ///< in pixels, at least 1
      width = 0;     ///< in pixels; 0: a square
  /// The middle; draws nothing.
  Image operator()(Image, TransformRandom&) const;
};
/// torchvision.transforms.Pad: adds pixels on each side.
struct Pad {
  Padding padding = {};                              ///< in pixels
  std::uint8_t fill = 0;                             ///< level of all channels for PaddingMode::constant
  PaddingMode padding_mode = PaddingMode::constant;  ///< what the added pixels show
  /// The padded image; draws nothing.
  Image operator()(Image, TransformRandom&) const;
};
/// torchvision.transforms.RandomCrop: a part of the padded image at a random place.
struct RandomCrop {
  Index height = 0,                                  ///< in pixels, at least 1
      width = 0;                                     ///< in pixels; 0: a square
  Padding padding = {};                              ///< added before the crop, in pixels
  std::uint8_t fill = 0;                             ///< level of all channels for PaddingMode::constant
  PaddingMode padding_mode = PaddingMode::constant;  ///< what the added pixels show
  /// The crop. Throws Error for a crop larger than the padded image.
  Image operator()(Image, TransformRandom&) const;
};
/// torchvision.transforms.RandomResizedCrop: a part of random area and aspect ratio, resized to height x width (Szegedy
/// et al. 2014, arXiv 1409.4842, section 6).
struct RandomResizedCrop {
  Index height = 0,             ///< in pixels, at least 1
      width = 0;                ///< in pixels; 0: a square
  Interval scale = crop_scale,  ///< range of the area, as a share of the image's area
      ratio = crop_ratio;       ///< range of width / height
  /// The resized crop.
  Image operator()(Image, TransformRandom&) const;
};
/// torchvision.transforms.RandomHorizontalFlip: left becomes right.
struct RandomHorizontalFlip {
  double p = 0.5;  ///< probability
  /// The image, or its mirror image.
  Image operator()(Image, TransformRandom&) const;
};
/// torchvision.transforms.RandomVerticalFlip: top becomes bottom.
struct RandomVerticalFlip {
  double p = 0.5;  ///< probability
  /// The image, or its mirror image.
  Image operator()(Image, TransformRandom&) const;
};
/// torchvision.transforms.RandomRotation: about the centre, bilinear, black outside of the image.
struct RandomRotation {
  double degrees = 0;  ///< the angle is uniform in [-degrees, degrees)
  /// The rotated image, of the same size.
  Image operator()(Image, TransformRandom&) const;
};
/// torchvision.transforms.ColorJitter: changes brightness, contrast, saturation and hue, in random order. A value of 0
/// leaves that property as it is.
struct ColorJitter {
  double brightness = 0,  ///< v: the factor is uniform in [max(0, 1 - v), 1 + v)
      contrast = 0,       ///< as brightness
      saturation = 0,     ///< as brightness
      hue = 0;            ///< h, at most 0.5: the number added to the hue is uniform in [-h, h)
  /// The changed image.
  Image operator()(Image, TransformRandom&) const;
};
/// torchvision.transforms.Grayscale: Rec. 601 luma.
struct Grayscale {
  Index num_output_channels = 1;  ///< 1, or 3 equal channels
  /// The grey image; draws nothing.
  Image operator()(Image, TransformRandom&) const;
};
/// torchvision.transforms.GaussianBlur with a random standard deviation.
struct GaussianBlur {
  Index kernel_size = 3;      ///< width of the window in pixels, odd
  Interval sigma = {0.1, 2};  ///< range of the standard deviation, in pixels
  /// The blurred image.
  Image operator()(Image, TransformRandom&) const;
};
/// torchvision.transforms.RandomErasing: fills a random rectangle (Zhong et al. 2017, arXiv 1708.04896). Nothing is
/// filled if none of ten drawn rectangles fits. The levels are those before normalization: torchvision's value 0 after
/// Normalize is 255 times the mean here.
struct RandomErasing {
  double p = 0.5;                         ///< probability
  Interval scale = {0.02, 0.33},          ///< range of the area, as a share of the image's area
      ratio = {0.3, 3.3};                 ///< range of height / width
  std::vector<std::uint8_t> value = {0};  ///< one level for all channels, or one for each channel
  /// The image with the rectangle filled.
  Image operator()(Image, TransformRandom&) const;
};

}  // namespace trireme
