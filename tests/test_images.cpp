#include <map>

#include "datasets/crop.h"
#include "datasets/encoded.h"
#include "tests/catch.h"
#include "tests/image_files.h"

using namespace trireme;
using namespace trireme::test;

namespace {

/// Encoded images held in memory, all of one class.
class Held final : public EncodedSource {
 public:
  explicit Held(std::vector<Bytes> files) : files_(std::move(files)) {}
  std::string name() const override { return "held"; }
  Index size() const override { return std::ssize(files_); }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::int64_t label(Index) const override { return 0; }
  std::string describe(Index id) const override { return fmt::format("file {}", id); }
  void read(Index id, std::vector<std::byte>& bytes) const override {
    const auto all = std::as_bytes(std::span(files_[static_cast<std::size_t>(id)]));
    bytes.assign(all.begin(), all.end());
  }

 private:
  std::vector<Bytes> files_;
  std::vector<std::string> classes_{"thing"};
};

Bytes sample(const Dataset& data, Index id, const Draw& draw = {}) {
  Bytes pixels(static_cast<std::size_t>(data->shape().numel()));
  data->read(id, pixels, draw);
  return pixels;
}

}  // namespace

TEST_CASE("images: crops lie inside the image, with the areas and ratios asked for") {
  double areas = 0;
  int flips = 0;
  const int n = 2000;
  for (int id = 0; id < n; ++id) {
    const Crop c = random_resized_crop(500, 375, {.seed = 3, .epoch = 1}, id);
    REQUIRE((c.left >= 0 && c.top >= 0 && c.left + c.width <= 500 && c.top + c.height <= 375));
    REQUIRE((c.width / c.height > 0.74 && c.width / c.height < 1.35));
    const double area = c.width * c.height / (500 * 375);
    REQUIRE((area > 0.079 && area < 1.01));
    areas += area, flips += c.flip;
  }
  CHECK(areas / n == Approx(0.43).margin(0.02));  // as torchvision draws: large ones often do not fit
  CHECK(flips == Approx(n / 2).margin(100));
  const Crop narrow = random_resized_crop(10, 1000, {}, 0);
  CHECK((narrow.width == 10 && narrow.height == 13 && narrow.left == 0 && narrow.top == 493));
}

TEST_CASE("images: the centre is the one torchvision cuts out") {
  const Crop c = central_crop(500, 375, 224, 0.875);  // resized to 341 x 256
  CHECK(c.left == Approx(58 * 500.0 / 341));
  CHECK(c.top == Approx(16 * 375.0 / 256));
  CHECK(c.width == Approx(224 * 500.0 / 341));
  CHECK(c.height == Approx(224 * 375.0 / 256));
}

TEST_CASE("images: a sample is a function of seed, epoch and id") {
  const Bytes file = jpeg(photo(60, 40), 60, 40);
  const Dataset train = Images(std::make_shared<Held>(std::vector{file, file}), {.size = 16, .augment = true});
  CHECK(train->shape() == Shape{16, 16, 3});
  const Bytes first = sample(train, 0, {.seed = 1, .epoch = 2});
  CHECK(first == sample(train, 0, {.seed = 1, .epoch = 2}));
  CHECK(first != sample(train, 0, {.seed = 2, .epoch = 2}));
  CHECK(first != sample(train, 0, {.seed = 1, .epoch = 3}));
  CHECK(first != sample(train, 1, {.seed = 1, .epoch = 2}));
  const Dataset test = Images(std::make_shared<Held>(std::vector{file, file}), {.size = 16});
  CHECK(sample(test, 0, {.seed = 1}) == sample(test, 1, {.seed = 2}));
}
