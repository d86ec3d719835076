#include "datasets/images/images.h"

#include <mutex>

#include "datasets/images/crop.h"
#include "datasets/images/image_reader.h"
#include "datasets/images/resize.h"

namespace trireme {
namespace {

constexpr Index channels = 3;

class ImagesDataset final : public DatasetSource {
 public:
  ImagesDataset(std::unique_ptr<const EncodedSource> source, const ImagesOptions& options)
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
  std::vector<std::string> class_names() const override { return source_->classes(); }
  std::string fingerprint() const override { return source_->fingerprint(); }
  std::int64_t read(Index id, std::span<std::uint8_t> pixels, const AugmentKey& draw) const override {
    check_read(id, pixels);
    try {
      return read_one(id, pixels, draw);
    } catch (const Error& error) {
      const std::string why = fmt::format("sample {}: {}", id, error.what());
      check(options_.on_bad == OnBad::skip, error.kind(), "images", "{} (--data.on-bad skip replaces it)", why);
      const std::scoped_lock lock(mutex_);
      if (bad_.count++ == 0) bad_.first = why;
    }
    return read_next_good(id, pixels, draw);
  }
  BadSamples bad() const override {
    const std::scoped_lock lock(mutex_);
    return bad_;
  }

 private:
  std::int64_t read_one(Index id, std::span<std::uint8_t> pixels, const AugmentKey& draw) const {
    DecoderPool desk = take_desk();
    const std::string source = source_->describe(id);
    source_->read(id, desk->bytes);
    const Region image = desk->reader.open(desk->bytes, source);
    const Index n = options_.size;
    const Crop crop = options_.augment ? random_resized_crop(image.width, image.height, draw, id)
                                       : central_crop(image.width, image.height, n, options_.central);
    desk->resize(desk->reader.decode(crop, n, n, source), crop, n, n, pixels.data());
    return_desk(std::move(desk));
    return source_->label(id);
  }
  std::int64_t read_next_good(Index id, std::span<std::uint8_t> pixels, const AugmentKey& draw) const {
    const Index most = std::min<Index>(1000, size() - 1);
    for (Index i = 1; i <= most; ++i) try {
        return read_one((id + i) % size(), pixels, draw);
      } catch (const Error&) {}
    fail(ErrorKind::data, "images", "{}: no image can be used from sample {} on ({} tried): {}", name(), id, most + 1,
         bad().first);
  }

  /// A thread's objects for making samples, reused from sample to sample.
  struct Tools {
    std::vector<std::byte> bytes;
    ImageReader reader;
    Resizer resize;
  };
  using DecoderPool = std::unique_ptr<Tools>;
  DecoderPool take_desk() const {
    const std::scoped_lock lock(mutex_);
    if (free_.empty()) return std::make_unique<Tools>();
    DecoderPool desk = std::move(free_.back());
    free_.pop_back();
    return desk;
  }
  /// Returns the objects to the pool. They are not returned after an error.
  void return_desk(DecoderPool desk) const {
    const std::scoped_lock lock(mutex_);
    free_.push_back(std::move(desk));
  }

  std::unique_ptr<const EncodedSource> source_;
  ImagesOptions options_;
  mutable std::mutex mutex_;
  mutable std::vector<DecoderPool> free_;
  mutable BadSamples bad_;
};

}  // namespace

Dataset Images(std::unique_ptr<const EncodedSource> source, const ImagesOptions& options) {
  return std::make_unique<ImagesDataset>(std::move(source), options);
}

}  // namespace trireme
