#include <map>

#include "datasets/images/crop.h"
#include "datasets/images/image.h"
#include "datasets/images/image_reader.h"
#include "datasets/images/images.h"
#include "datasets/images/resize.h"
#include "tests/datasets/image_files.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"

namespace test_images {

using namespace trireme;
using namespace trireme::test;

namespace {

/// Encoded images held in memory, all of one class.
class InMemoryFiles final : public EncodedSource {
 public:
  explicit InMemoryFiles(std::vector<Bytes> files) : files_(std::move(files)) {}
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

Bytes sample(const Dataset& data, Index id, const AugmentKey& draw = {}) {
  Bytes pixels(static_cast<std::size_t>(data->shape().numel()));
  data->read(id, pixels, draw);
  return pixels;
}

/// Largest and mean difference from an oracle's values.
std::pair<double, double> difference(const Bytes& ours, const std::vector<double>& theirs) {
  REQUIRE(ours.size() == theirs.size());
  double most = 0, sum = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double d = std::abs(ours[i] - theirs[i]);
    most = std::max(most, d);
    sum += d;
  }
  return {most, sum / static_cast<double>(ours.size())};
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
    areas += area;
    flips += c.flip;
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
  const Dataset train = Images(std::make_unique<InMemoryFiles>(std::vector{file, file}), {.size = 16, .augment = true});
  CHECK(train->shape() == Shape{16, 16, 3});
  const Bytes first = sample(train, 0, {.seed = 1, .epoch = 2});
  CHECK(first == sample(train, 0, {.seed = 1, .epoch = 2}));
  CHECK(first != sample(train, 0, {.seed = 2, .epoch = 2}));
  CHECK(first != sample(train, 0, {.seed = 1, .epoch = 3}));
  CHECK(first != sample(train, 1, {.seed = 1, .epoch = 2}));
  const Dataset test = Images(std::make_unique<InMemoryFiles>(std::vector{file, file}), {.size = 16});
  CHECK(sample(test, 0, {.seed = 1}) == sample(test, 1, {.seed = 2}));
}

TEST_CASE("images: as PIL and torchvision make them") {
  const int width = 500, height = 375, size = 112;
  const Bytes file = jpeg(photo(width, height), width, height, {.quality = 90, .sampling = 2});
  const Dataset train =
      Images(std::make_unique<InMemoryFiles>(std::vector<Bytes>(12, file)), {.size = size, .augment = true});
  const Dataset test = Images(std::make_unique<InMemoryFiles>(std::vector<Bytes>{file}), {.size = size});
  const AugmentKey draw{.seed = 5, .epoch = 1};
  std::vector<double> crops;
  for (Index id = 0; id < train->size(); ++id) {
    const Crop c = random_resized_crop(width, height, draw, id);
    crops.insert(crops.end(), {c.left, c.top, c.width, c.height, c.flip ? 1.0 : 0.0});
  }
  Oracle oracle;
  oracle.note("image.jpg", std::string(file.begin(), file.end()));
  oracle.put("crops", crops);
  oracle.put("size", std::vector<double>{size});
  if (!oracle.run("pil_images.py")) return;
  const Tensor whole = decode_image(std::as_bytes(std::span(file)), 3, "F");
  CHECK(
      difference({whole.data<std::uint8_t>(), whole.data<std::uint8_t>() + whole.numel()}, oracle.get("whole")).first ==
      0);
  int shrunk = 0;
  for (Index id = 0; id < train->size(); ++id) {
    const double* c = crops.data() + 5 * id;
    const bool scaled = std::min(c[2], c[3]) >= 2 * size;  // what is decoded at half size or less is a little smoother
    shrunk += scaled;
    const auto [most, mean] = difference(sample(train, id, draw), oracle.get("crop" + std::to_string(id)));
    INFO("crop " << id << " of " << c[2] << " x " << c[3] << ": " << most << " at most, " << mean << " on average");
    CHECK(most <= (scaled ? 40 : 2));
    CHECK(mean <= (scaled ? 2.5 : 0.5));
  }
  CHECK((shrunk > 0 && shrunk < 12));
  const auto [most, mean] = difference(sample(test, 0), oracle.get("centre"));
  INFO("centre: " << most << " at most, " << mean << " on average");
  CHECK(most <= 40);
  CHECK(mean <= 2.5);
}

TEST_CASE("images: a flip is the mirror image, exactly") {
  const Bytes file = jpeg(photo(90, 70), 90, 70);
  ImageReader reader;
  Resizer resize;
  reader.open(std::as_bytes(std::span(file)), "F");
  const Index n = 24;
  Crop crop{.left = 7, .top = 3, .width = 61, .height = 53};
  const PixelBlock block = reader.decode(crop, n, n, "F");
  Bytes plain(n * n * 3), mirrored(plain);
  resize(block, crop, n, n, plain.data());
  crop.flip = true;
  resize(block, crop, n, n, mirrored.data());
  int different = 0;
  for (Index y = 0; y < n; ++y)
    for (Index x = 0; x < n; ++x)
      for (Index c = 0; c < 3; ++c)
        different += plain[static_cast<std::size_t>((y * n + x) * 3 + c)] !=
                     mirrored[static_cast<std::size_t>((y * n + n - 1 - x) * 3 + c)];
  CHECK(different == 0);
}

}  // namespace test_images
