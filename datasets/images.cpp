// Samples from encoded images: decode, crop, resize, flip.
#include <cmath>
#include <cstring>

#include "datasets/crop.h"
#include "datasets/encoded.h"
#include "datasets/image.h"

namespace trireme {
namespace {

constexpr Index channels = 3;

class ImagesDataset final : public DatasetSource {
 public:
  ImagesDataset(std::shared_ptr<const EncodedSource> source, const ImagesOptions& options)
      : source_(std::move(source)), options_(options) {
    check(source_ != nullptr, "images", "there is no source");
    check(options.size >= 1, "images", "size is {}, it must be at least 1", options.size);
    check(options.central > 0 && options.central <= 1, "images", "central is {}, it must lie in (0, 1]",
          options.central);
  }
  std::string name() const override { return source_->name(); }
  Index size() const override { return source_->size(); }
  Shape shape() const override { return {options_.size, options_.size, channels}; }
  Index classes() const override { return std::ssize(source_->classes()); }
  PixelScale scale() const override { return options_.scale; }
  std::int64_t read(Index id, std::span<std::uint8_t> pixels, const Draw& draw) const override {
    check(id >= 0 && id < size(), name(), "sample {} is outside [0, {})", id, size());
    check(std::ssize(pixels) == shape().numel(), name(), "room for {} pixels, a sample has {}", pixels.size(),
          shape().numel());
    std::vector<std::byte> bytes;
    source_->read(id, bytes);
    const Tensor image = decode_image(bytes, channels, source_->describe(id));
    const Index width = image.dim(1), height = image.dim(0), n = options_.size;
    const Crop crop = options_.augment ? random_resized_crop(width, height, draw, id)
                                       : central_crop(width, height, n, options_.central);
    const Tensor part = resize(cut(image, crop), n, n);
    const auto* from = part.data<std::uint8_t>();
    for (Index y = 0; y < n; ++y)
      for (Index x = 0; x < n; ++x)
        std::memcpy(pixels.data() + (y * n + (crop.flip ? n - 1 - x : x)) * channels, from + (y * n + x) * channels,
                    channels);
    return source_->label(id);
  }

 private:
  static Tensor cut(const Tensor& image, const Crop& crop) {
    const auto left = static_cast<Index>(std::max(0.0, crop.left)), top = static_cast<Index>(std::max(0.0, crop.top));
    const auto right = std::min(image.dim(1), static_cast<Index>(std::ceil(crop.left + crop.width)));
    const auto bottom = std::min(image.dim(0), static_cast<Index>(std::ceil(crop.top + crop.height)));
    Tensor part = Tensor::empty({bottom - top, right - left, channels}, DType::u8);
    const Index line = part.dim(1) * channels;
    for (Index y = 0; y < part.dim(0); ++y)
      std::memcpy(part.data<std::uint8_t>() + y * line,
                  image.data<std::uint8_t>() + ((top + y) * image.dim(1) + left) * channels,
                  static_cast<std::size_t>(line));
    return part;
  }

  std::shared_ptr<const EncodedSource> source_;
  ImagesOptions options_;
};

}  // namespace

Dataset Images(std::shared_ptr<const EncodedSource> source, const ImagesOptions& options) {
  return std::make_shared<ImagesDataset>(std::move(source), options);
}

}  // namespace trireme
