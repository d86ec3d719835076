#include "datasets/images/transforms.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "datasets/core/random_stream.h"

namespace trireme {
namespace {

class Transformed final : public DatasetWrapper {
 public:
  Transformed(Dataset data, std::vector<ImageTransform> transforms, Index view)
      : DatasetWrapper(std::move(data), "transformed"), transforms_(std::move(transforms)), view_(view) {
    const Shape given = data_->shape();
    check(view >= 0 && view < 65536, "transformed", "view is {}, it must lie in [0, 65536)", view);
    check(
        given.rank() == 3, "transformed", "samples of {} are {}, expected [height, width, channels]",
        [&] { return data_->name(); }, given);
    for (const ImageTransform& f : transforms_) check(bool(f), "transformed", "a transform is an empty function");
    Image first{given[0], given[1], given[2], std::vector<std::uint8_t>(static_cast<std::size_t>(given.numel()))};
    if (data_->size() > 0) data_->read(0, first.pixels, {});
    first = changed(std::move(first), 0, {});
    shape_ = {first.height, first.width, first.channels};
  }
  Shape shape() const override { return shape_; }
  Index transforms() const override { return data_->transforms() + std::ssize(transforms_); }
  std::int64_t read(Index id, std::span<std::uint8_t> pixels, const AugmentKey& draw) const override {
    check_read(id, pixels);
    const Shape given = data_->shape();
    Image image{given[0], given[1], given[2], std::vector<std::uint8_t>(static_cast<std::size_t>(given.numel()))};
    const std::int64_t label = data_->read(id, image.pixels, draw);
    image = changed(std::move(image), id, draw);
    const Shape made{image.height, image.width, image.channels};
    check(
        made == shape_, ErrorKind::data, "transformed",
        "sample {} of {} became {}, the first one {}: end with one of Resize and crops", id,
        [&] { return data_->name(); }, made, shape_);
    std::copy(image.pixels.begin(), image.pixels.end(), pixels.begin());
    return label;
  }

 private:
  Image changed(Image image, Index id, const AugmentKey& draw) const {
    Index place = data_->transforms();
    for (const ImageTransform& f : transforms_) {
      TransformRandom random(draw, id, place++, view_);
      image = f(std::move(image), random);
      check_image("transformed", image);
    }
    return image;
  }

  std::vector<ImageTransform> transforms_;
  Index view_;
  Shape shape_;
};

Index or_square(Index width, Index height) { return width > 0 ? width : height; }
void check_interval(const char* op, const char* what, const Interval& i, double least, double most) {
  check(i.low >= least && i.low <= i.high && i.high <= most, op, "{} is [{}, {}], it must lie in [{}, {}]", what, i.low,
        i.high, least, most);
}
constexpr double unbounded = std::numeric_limits<double>::max(), above_zero = std::numeric_limits<double>::min();

}  // namespace

TransformRandom::TransformRandom(const AugmentKey& key, Index id, Index place, Index view)
    : random_(random_stream(key.seed, RandomStream::transform, key.epoch)),
      id_(static_cast<std::uint64_t>(id)),
      next_(static_cast<std::uint64_t>(view) << 48 | static_cast<std::uint64_t>(place) << 32) {}
std::array<std::uint32_t, 4> TransformRandom::words() { return random_(id_, next_++); }
double TransformRandom::uniform() {
  const auto w = words();
  return static_cast<double>((std::uint64_t{w[0]} << 32 | w[1]) >> 11) * 0x1p-53;
}
double TransformRandom::uniform(double low, double high) { return low + (high - low) * uniform(); }
Index TransformRandom::below(Index n) {
  check(n >= 1, "random", "a number below {} is asked for", n);
  const auto bound = static_cast<std::uint64_t>(n), unfair = -bound % bound;  // the first 2^64 mod n numbers are
                                                                              // rejected
  for (;;) {
    const auto w = words();
    const std::uint64_t drawn = std::uint64_t{w[0]} << 32 | w[1];
    if (drawn >= unfair) return static_cast<Index>(drawn % bound);
  }
}
bool TransformRandom::chance(double p) {
  check(p >= 0 && p <= 1, "random", "the probability is {}, it must lie in [0, 1]", p);
  return uniform() < p;
}

Dataset transformed(Dataset data, std::vector<ImageTransform> transforms, Index view) {
  return std::make_unique<Transformed>(std::move(data), std::move(transforms), view);
}

Image Resize::operator()(Image image, TransformRandom&) const {
  check_image("Resize", image);
  if (width > 0) return resize(std::move(image), height, width);
  const Index shorter = std::min(image.height, image.width);
  const Index rows = height * image.height / shorter, columns = height * image.width / shorter;
  return resize(std::move(image), rows, columns);
}
Image CenterCrop::operator()(Image image, TransformRandom&) const {
  return center_crop(image, height, or_square(width, height));
}
Image Pad::operator()(Image image, TransformRandom&) const { return pad(image, padding, padding_mode, fill); }
Image RandomCrop::operator()(Image image, TransformRandom& random) const {
  if (padding != Padding()) image = pad(image, padding, padding_mode, fill);
  const Index wide = or_square(width, height), rows = image.height - height, columns = image.width - wide;
  check(rows >= 0 && columns >= 0, "RandomCrop", "{} x {} pixels of {} x {}: use padding, or Resize", height, wide,
        image.height, image.width);
  const Index top = random.below(rows + 1), left = random.below(columns + 1);
  return crop(image, top, left, height, wide);
}
Image RandomResizedCrop::operator()(Image image, TransformRandom& random) const {
  check_interval("RandomResizedCrop", "scale", scale, 0, 1);
  check_interval("RandomResizedCrop", "ratio", ratio, above_zero, unbounded);
  const Crop part = random_resized_crop(image.width, image.height, scale, ratio, [&random] { return random.words(); });
  return resized_crop(std::move(image), part, height, or_square(width, height));
}
Image RandomHorizontalFlip::operator()(Image image, TransformRandom& random) const {
  return random.chance(p) ? hflip(image) : image;
}
Image RandomVerticalFlip::operator()(Image image, TransformRandom& random) const {
  return random.chance(p) ? vflip(image) : image;
}
Image RandomRotation::operator()(Image image, TransformRandom& random) const {
  check(degrees >= 0, "RandomRotation", "degrees is {}, it must not be negative", degrees);
  return rotate(image, random.uniform(-degrees, degrees));
}
Image ColorJitter::operator()(Image image, TransformRandom& random) const {
  for (const double v : {brightness, contrast, saturation, hue})
    check(v >= 0 && std::isfinite(v), "ColorJitter", "a strength is {}, it must be at least 0", v);
  check(hue <= 0.5, "ColorJitter", "hue is {}, it must be at most 0.5", hue);
  const auto factor = [&](double strength) { return random.uniform(std::max(0.0, 1 - strength), 1 + strength); };
  std::array<int, 4> order{0, 1, 2, 3};
  for (std::size_t i = 4; i > 1; --i)
    std::swap(order[i - 1], order[static_cast<std::size_t>(random.below(static_cast<Index>(i)))]);
  for (const int which : order) {
    if (which == 0 && brightness > 0) image = adjust_brightness(std::move(image), factor(brightness));
    if (which == 1 && contrast > 0) image = adjust_contrast(std::move(image), factor(contrast));
    if (which == 2 && saturation > 0) image = adjust_saturation(std::move(image), factor(saturation));
    if (which == 3 && hue > 0) image = adjust_hue(std::move(image), random.uniform(-hue, hue));
  }
  return image;
}
Image Grayscale::operator()(Image image, TransformRandom&) const { return to_grayscale(image, num_output_channels); }
Image GaussianBlur::operator()(Image image, TransformRandom& random) const {
  check_interval("GaussianBlur", "sigma", sigma, above_zero, unbounded);
  return gaussian_blur(image, kernel_size, random.uniform(sigma.low, sigma.high));
}
Image RandomErasing::operator()(Image image, TransformRandom& random) const {
  check_interval("RandomErasing", "scale", scale, 0, 1);
  check_interval("RandomErasing", "ratio", ratio, above_zero, unbounded);
  check_image("RandomErasing", image);
  if (!random.chance(p)) return image;
  constexpr int tries = 10;
  for (int i = 0; i < tries; ++i) {
    const double area = static_cast<double>(image.height * image.width) * random.uniform(scale.low, scale.high);
    const double sides = std::exp(random.uniform(std::log(ratio.low), std::log(ratio.high)));
    const auto high = static_cast<Index>(std::nearbyint(std::sqrt(area * sides)));
    const auto wide = static_cast<Index>(std::nearbyint(std::sqrt(area / sides)));
    if (high >= image.height || wide >= image.width) continue;
    const Index top = random.below(image.height - high + 1), left = random.below(image.width - wide + 1);
    return erase(std::move(image), top, left, high, wide, value);
  }
  return image;
}

}  // namespace trireme
