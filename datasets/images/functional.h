// Operations on u8 images with given parameters: torchvision.transforms.functional, with its names, and its results up
// to one grey level. The random transforms are in transforms.h.
#pragma once
#include <cstdint>
#include <vector>

#include "datasets/images/crop.h"

namespace trireme {

/// An image of u8 pixels, [height, width, channels], row-major.
struct Image {
  Index height = 0,                  ///< in pixels
      width = 0,                     ///< in pixels
      channels = 0;                  ///< 1 for grey, 3 for red, green and blue
  std::vector<std::uint8_t> pixels;  ///< height * width * channels
  /// Whether the sizes and all pixels are equal.
  bool operator==(const Image&) const = default;
};
/// Throws Error for an image without pixels, or whose number of pixels differs from its size. Every function below does
/// so. op: the name with which the message begins.
void check_image(std::string_view op, const Image&);

/// Resizes, bilinear, antialiased if the image shrinks. Sizes in pixels. Throws Error for a size below 1.
Image resize(Image, Index height, Index width);
/// A part of the image, resized to height x width, and mirrored if crop.flip is set. The part may begin and end inside
/// pixels. Throws Error for a part that is empty or not inside the image.
Image resized_crop(Image, const Crop&, Index height, Index width);
/// A part of the image that begins at pixel (top, left); black outside of the image. Throws Error for a size below 1.
Image crop(const Image&, Index top, Index left, Index height, Index width);
/// The middle part of height x width pixels; black where the part is larger than the image.
Image center_crop(const Image&, Index height, Index width);

/// Numbers of pixels that are added on the four sides of an image.
struct Padding {
  Padding(Index all = 0) : Padding(all, all) {}  ///< the same on all sides. NOLINT: implicit
  /// The same left and right, and the same at top and bottom.
  Padding(Index left_right, Index top_bottom) : Padding(left_right, top_bottom, left_right, top_bottom) {}
  /// Left, top, right, bottom: torchvision's order.
  Padding(Index l, Index t, Index r, Index b) : left(l), top(t), right(r), bottom(b) {}
  Index left,  ///< in pixels, at least 0
      top,     ///< in pixels, at least 0
      right,   ///< in pixels, at least 0
      bottom;  ///< in pixels, at least 0
  /// Whether all four numbers are equal.
  bool operator==(const Padding&) const = default;
};
/// What the added pixels show. constant: one level. edge: the nearest pixel. reflect: the image mirrored at the centre
/// of the edge pixel (32|1234). symmetric: the image mirrored at the outer side of the edge pixel (21|1234).
enum class PaddingMode : std::uint8_t { constant, edge, reflect, symmetric };
/// Adds pixels on each side; fill: the level for PaddingMode::constant. Throws Error for negative padding, and for more
/// mirrored pixels than the image has.
Image pad(const Image&, const Padding&, PaddingMode = PaddingMode::constant, std::uint8_t fill = 0);

Image hflip(const Image&);  ///< mirrored: left becomes right
Image vflip(const Image&);  ///< mirrored: top becomes bottom
/// Rotates about the centre, counter-clockwise, at the same size: bilinear, black outside of the image.
Image rotate(const Image&, double degrees);

/// Grey levels (Rec. 601 luma) in 1 or 3 equal channels, the same bits as decode_image() makes of a PNG. This function,
/// adjust_contrast(), adjust_saturation() and adjust_hue() throw Error unless the image has 1 or 3 channels.
Image to_grayscale(const Image&, Index channels = 1);
/// Multiplies the levels by a factor; 1 changes nothing. This function, adjust_contrast() and adjust_saturation() throw
/// Error for a factor below 0 or not finite.
Image adjust_brightness(Image, double factor);
/// Multiplies the distance of each level from the mean grey level by a factor.
Image adjust_contrast(Image, double factor);
/// Multiplies the distance of each level from the grey level of its pixel by a factor. Leaves a grey image as it is.
Image adjust_saturation(Image, double factor);
/// Adds to the hue of HSV, where 1 is the whole circle. Throws Error for a number outside [-0.5, 0.5]. Leaves a grey
/// image as it is.
Image adjust_hue(Image, double by);
/// Gaussian blur with a window of kernel_size x kernel_size pixels and a standard deviation of sigma pixels. The image
/// is reflected at its edges. Throws Error for an even kernel_size, for sigma <= 0, and for an image side of
/// kernel_size / 2 pixels or fewer.
Image gaussian_blur(const Image&, Index kernel_size, double sigma);

/// Fills a rectangle with one level for all channels, or one level for each channel. Throws Error for another number of
/// levels, and for a rectangle that is not inside the image.
Image erase(Image, Index top, Index left, Index height, Index width, const std::vector<std::uint8_t>& value);

}  // namespace trireme
