#include "datasets/images/augment.h"

#include <algorithm>

#include "datasets/core/random_stream.h"
#include "datasets/images/functional.h"

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
    check_read(id, pixels);
    const Shape shape = data_->shape();
    Image image{shape[0], shape[1], shape[2], std::vector<std::uint8_t>(pixels.size())};
    const std::int64_t label = data_->read(id, image.pixels, draw);
    const Philox random = random_stream(draw.seed, RandomStream::shift_flip, draw.epoch);
    const auto bits = random(0, static_cast<std::uint64_t>(id));
    const auto places = static_cast<std::uint32_t>(2 * options_.pad + 1);
    const Index down = static_cast<Index>(bits[0] % places) - options_.pad;
    const Index right = static_cast<Index>(bits[1] % places) - options_.pad;
    image = crop(image, down, right, image.height, image.width);
    if (options_.flip && bits[2] % 2 == 1) image = hflip(image);
    std::copy(image.pixels.begin(), image.pixels.end(), pixels.begin());
    return label;
  }

 private:
  AugmentOptions options_;
};

}  // namespace

Dataset augmented(Dataset data, const AugmentOptions& options) {
  return std::make_unique<Augmented>(std::move(data), options);
}

}  // namespace trireme
