#include "datasets/images/augment.h"

#include <algorithm>

#include "datasets/core/random_stream.h"

namespace trireme {
namespace {

class Augmented final : public DatasetWrapper {
 public:
  Augmented(Dataset data, const AugmentOptions& options)
      : DatasetWrapper(std::move(data), "augment"), options_(options) {
    check(
        data_->shape().rank() == 3, "augment", "samples of {} are {}, expected [height, width, channels]",
        [&] { return data_->name(); }, data_->shape());
    check(options.pad >= 0, "augment", "pad is {}, it must not be negative", options.pad);
  }
  std::int64_t read(Index id, std::span<std::uint8_t> pixels, const AugmentKey& draw) const override {
    std::vector<std::uint8_t> whole(pixels.size());
    const std::int64_t label = data_->read(id, whole, draw);
    const Philox random = random_stream(draw.seed, RandomStream::shift_flip, draw.epoch);
    const auto bits = random(0, static_cast<std::uint64_t>(id));
    const auto places = static_cast<std::uint32_t>(2 * options_.pad + 1);
    const Index down = static_cast<Index>(bits[0] % places) - options_.pad;
    const Index right = static_cast<Index>(bits[1] % places) - options_.pad;
    cut(whole, pixels, down, right, options_.flip && bits[2] % 2 == 1);
    return label;
  }

 private:
  /// to(row, column) = from(row + down, column + right), black outside, mirrored when asked.
  void cut(const std::vector<std::uint8_t>& from, std::span<std::uint8_t> to, Index down, Index right,
           bool mirror) const {
    const Shape shape = data_->shape();
    const Index height = shape[0], width = shape[1], channels = shape[2];
    for (Index row = 0; row < height; ++row)
      for (Index column = 0; column < width; ++column) {
        const Index y = row + down, x = (mirror ? width - 1 - column : column) + right;
        std::uint8_t* pixel = to.data() + (row * width + column) * channels;
        if (y >= 0 && y < height && x >= 0 && x < width)
          std::copy_n(from.data() + (y * width + x) * channels, channels, pixel);
        else
          std::fill_n(pixel, channels, std::uint8_t{0});
      }
  }

  AugmentOptions options_;
};

}  // namespace

Dataset augmented(Dataset data, const AugmentOptions& options) {
  return std::make_unique<Augmented>(std::move(data), options);
}

}  // namespace trireme
