// Images of u8 pixels, cut, turned and coloured by given numbers: torchvision.transforms.functional, under its names
// and with its results, up to one grey level. The random ones are in transforms.h.
#pragma once
#include <cstdint>
#include <vector>

#include "datasets/images/crop.h"

namespace trireme {

/// u8 pixels, [height, width, channels], row-major.
struct Image {
  Index height = 0, width = 0, channels = 0;
  std::vector<std::uint8_t> pixels;  ///< height * width * channels
  bool operator==(const Image&) const = default;
};
/// Throws Error, beginning with op, for an image without pixels, or with others than its size says. All that follow do
/// so.
void check_image(std::string_view op, const Image&);

/// Bilinear, antialiased when shrinking. Throws Error for a size below 1.
Image resize(Image, Index height, Index width);
/// A part of the image, which may begin and end inside pixels, at another size; mirrored if the crop says so. Throws
/// Error for a part that is empty or does not lie in the image.
Image resized_crop(Image, const Crop&, Index height, Index width);
/// A part of the image from pixel (top, left) on; black outside of it. Throws Error for a size below 1.
Image crop(const Image&, Index top, Index left, Index height, Index width);
/// The part in the middle; black where it is larger than the image.
Image center_crop(const Image&, Index height, Index width);

/// Pixels that are added beside an image.
struct Padding {
  Padding(Index all = 0) : Padding(all, all) {}  // NOLINT: implicit
  Padding(Index left_right, Index top_bottom) : Padding(left_right, top_bottom, left_right, top_bottom) {}
  Padding(Index l, Index t, Index r, Index b) : left(l), top(t), right(r), bottom(b) {}
  Index left, top, right, bottom;
  bool operator==(const Padding&) const = default;
};
/// What they show: a level, the pixel at the edge, or the image in a mirror that lies on the pixel at the edge
/// (321|234) or behind it (symmetric: 21|123).
enum class PaddingMode : std::uint8_t { constant, edge, reflect, symmetric };
/// Throws Error for a negative padding, and for more pixels than a mirror has.
Image pad(const Image&, const Padding&, PaddingMode = PaddingMode::constant, std::uint8_t fill = 0);

Image hflip(const Image&);  ///< left becomes right
Image vflip(const Image&);  ///< top becomes bottom
/// About the centre, counter-clockwise, at the same size; bilinear, black outside of the image.
Image rotate(const Image&, double degrees);

/// Grey levels (Rec. 601 luma) in 1 or 3 equal channels, bit for bit what decode_image() makes of a PNG. Throws Error
/// for images of other channels than 1 or 3, as do contrast, saturation and hue.
Image to_grayscale(const Image&, Index channels = 1);
/// factor times the levels. Throws Error, as the next two, for a factor below 0 or not finite. 1: as it was.
Image adjust_brightness(Image, double factor);
/// factor times the distance from the mean grey level.
Image adjust_contrast(Image, double factor);
/// factor times the distance from the pixel's own grey level; an image of one channel stays as it is.
Image adjust_saturation(Image, double factor);
/// Adds to the hue of HSV, of which 1 is the whole circle. Throws Error outside [-0.5, 0.5]. One channel stays as it
/// is.
Image adjust_hue(Image, double by);
/// Weighted by a Gaussian of sigma pixels over kernel_size x kernel_size of them, reflected at the edges. Throws Error
/// for an even size, a sigma that is not above 0, and an image of no more than kernel_size / 2 pixels.
Image gaussian_blur(const Image&, Index kernel_size, double sigma);

/// Fills a rectangle with levels: one for all channels, or one for each. Throws Error for other numbers of them, and
/// for a rectangle that does not lie in the image.
Image erase(Image, Index top, Index left, Index height, Index width, const std::vector<std::uint8_t>& value);

}  // namespace trireme
