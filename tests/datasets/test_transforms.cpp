// Transforms of images: as torchvision makes them, random ones by (seed, epoch, id) alone, in a data set and its
// loader.
#include "datasets/images/transforms.h"

#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "datasets/core/in_memory.h"
#include "datasets/core/loader.h"
#include "datasets/formats/synthetic.h"
#include "datasets/images/augment.h"
#include "tests/datasets/random_images.h"
#include "tests/support/catch.h"

namespace test_transforms {

using namespace trireme;
using namespace trireme::test;
using Bytes = std::vector<std::uint8_t>;

namespace {

Bytes read(const Dataset& data, Index id, const AugmentKey& draw = {}) {
  Bytes pixels(static_cast<std::size_t>(data->shape().numel()));
  pixels.push_back(static_cast<std::uint8_t>(data->read(id, std::span(pixels), draw)));
  return pixels;  // and the label
}
/// One sample, of this image.
Dataset only(const Image& image, Index copies = 1) {
  class Copies final : public DatasetSource {
   public:
    Copies(Image image, Index n) : image_(std::move(image)), n_(n) {}
    std::string name() const override { return "copies"; }
    Index size() const override { return n_; }
    Shape shape() const override { return {image_.height, image_.width, image_.channels}; }
    Index classes() const override { return 1; }
    PixelScale scale() const override { return {}; }
    std::int64_t read(Index id, std::span<std::uint8_t> pixels, const AugmentKey&) const override {
      check_read(id, pixels);
      std::ranges::copy(image_.pixels, pixels.begin());
      return 0;
    }

   private:
    Image image_;
    Index n_;
  };
  return std::make_unique<Copies>(image, copies);
}
Image random_once(const ImageTransform& f, const Image& image, Index id) {
  TransformRandom random({.seed = 5}, id, 0);
  return f(image, random);
}

/// A list of some transforms with random parameters, whose results are of one size.
std::vector<ImageTransform> random_list(TransformRandom& r) {
  std::vector<ImageTransform> all;
  const auto strength = [&] { return r.chance(0.3) ? 0 : r.uniform(0, 1); };
  for (Index n = between(r, 1, 5); n > 0; --n) switch (r.below(11)) {
      case 0: all.push_back(Resize{between(r, 6, 12), between(r, 6, 12)}); break;
      case 1: all.push_back(CenterCrop{between(r, 6, 12)}); break;
      case 2: all.push_back(Pad{{r.below(3), r.below(3)}, 7, static_cast<PaddingMode>(r.below(4))}); break;
      case 3: all.push_back(RandomCrop{6, between(r, 4, 6), Padding(r.below(3))}); break;
      case 4: all.push_back(RandomResizedCrop{between(r, 6, 12), between(r, 6, 12)}); break;
      case 5: all.push_back(RandomHorizontalFlip{r.uniform()}); break;
      case 6: all.push_back(RandomVerticalFlip{}); break;
      case 7: all.push_back(RandomRotation{r.uniform(0, 180)}); break;
      case 8: all.push_back(ColorJitter{strength(), strength(), strength(), strength() / 2}); break;
      case 9: all.push_back(GaussianBlur{3, {0.1, 2}}); break;
      default: all.push_back(RandomErasing{0.8, {0.05, 0.5}, {0.3, 3}, {static_cast<std::uint8_t>(r.below(256))}});
    }
  if (r.chance(0.2)) all.push_back(Grayscale{r.chance(0.5) ? 1 : 3});
  return all;
}

}  // namespace

TEST_CASE("random numbers of transforms: even, and of their key, sample and place alone") {
  const int n = 20000;
  double sum = 0, squares = 0;
  std::array<int, 7> counts{};
  int often = 0;
  TransformRandom random({}, 3, 1), again({}, 3, 1);
  std::set<std::array<std::uint32_t, 4>> seen;
  for (int i = 0; i < n; ++i) {
    const double u = random.uniform();
    REQUIRE((u >= 0 && u < 1 && u == again.uniform()));
    sum += u;
    squares += u * u;
    ++counts[static_cast<std::size_t>(random.below(7))];
    often += random.chance(0.3);
    again.below(7);
    again.chance(0.3);
  }
  CHECK(sum / n == Approx(0.5).margin(0.01));
  CHECK(squares / n == Approx(1.0 / 3).margin(0.01));
  CHECK(often == Approx(0.3 * n).margin(350));
  for (const int count : counts) CHECK(count == Approx(n / 7.0).margin(250));
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    for (Index epoch = 0; epoch < 4; ++epoch)
      for (Index id = 0; id < 4; ++id)
        for (Index place = 0; place < 4; ++place) {
          TransformRandom one({.seed = seed, .epoch = epoch}, id, place);
          for (int i = 0; i < 4; ++i) seen.insert(one.words());
        }
  CHECK(seen.size() == 4 * 4 * 4 * 4 * 4);
  CHECK_ERROR(random.below(0), usage, "random", 0);
}

TEST_CASE("transformed samples are functions of seed, epoch and id, whoever reads them when") {
  for (Index of_case = 0; of_case < 40; ++of_case) {
    TransformRandom r = numbers(1000 + of_case);
    const Index size = between(r, 3, 12);
    const Dataset plain = Synthetic({.size = size, .shape = {between(r, 6, 14), between(r, 6, 14), 3}, .classes = 3});
    const auto list = random_list(r);
    const Dataset data = transformed(plain, list), again = transformed(plain, list);
    INFO("case " << of_case << ", " << list.size() << " transforms");
    CHECK(data->classes() == 3);
    CHECK(data->transforms() == std::ssize(list));
    const AugmentKey key{.seed = 9, .epoch = of_case};
    std::vector<Bytes> first, last(static_cast<std::size_t>(size));
    for (Index id = 0; id < size; ++id) first.push_back(read(data, id, key));
    for (Index id = size; id-- > 0;) CHECK(read(again, id, key) == first[static_cast<std::size_t>(id)]);
    {
      std::vector<std::jthread> threads;
      for (int t = 0; t < 3; ++t)
        threads.emplace_back([&, t] {
          for (Index id = t; id < size; id += 3) last[static_cast<std::size_t>(id)] = read(data, id, key);
        });
    }
    CHECK(last == first);
    // On one rank and on three, with and without workers; as floats the same, too.
    std::map<Index, std::vector<double>> of_one;
    for (const int ranks : {1, 3})
      for (int rank = 0; rank < ranks; ++rank)
        for (Batch& b : Loader(data, {.batch = 5,
                                     .shuffle = true,
                                     .seed = 9,
                                     .epoch = of_case,
                                     .shard = {rank, ranks},
                                     .workers = ranks - 1})) {
          const auto ids = b.samples.to_vector<Index>();
          for (Index i = 0; i < b.rows(); ++i) {
            const auto x = b.x.view_rows(i, i + 1).to_vector();
            const auto id = ids[static_cast<std::size_t>(i)];
            if (ranks == 1)
              of_one[id] = x;
            else
              CHECK(of_one.at(id) == x);
          }
        }
    CHECK(std::ssize(of_one) == size);
  }
}

TEST_CASE("another seed, epoch or sample is changed otherwise, and so is a transform by its place") {
  TransformRandom r = numbers(1);
  const Image image = random_image(r, 3);
  const Dataset data = transformed(only(image, 50), {RandomErasing{.p = 1}});
  std::set<Bytes> seen;
  for (Index id = 0; id < 50; ++id)
    for (const AugmentKey& key : {AugmentKey{}, {.seed = 1}, {.epoch = 1}}) seen.insert(read(data, id, key));
  CHECK(seen.size() > 120);  // some rectangles are equal by chance
  // Two flips draw each their own numbers, in one list and in two.
  const std::vector<ImageTransform> both{RandomHorizontalFlip{}, RandomVerticalFlip{}};
  const Dataset once = transformed(only(image, 200), both);
  const Dataset twice = with_scale(
      transformed(augmented(transformed(only(image, 200), {both[0]}), {.pad = 0, .flip = false}), {both[1]}), {});
  std::map<Bytes, int> kinds;
  for (Index id = 0; id < 200; ++id) {
    ++kinds[read(once, id)];
    CHECK(read(once, id) == read(twice, id));
  }
  REQUIRE(kinds.size() == 4);
  for (const auto& [bytes, count] : kinds) CHECK(count == Approx(50).margin(30));
}

TEST_CASE("random transforms draw what their parameters say") {
  TransformRandom r = numbers(2);
  const int n = 600;
  Image image = random_image(r, 3);
  int flips = 0, seldom = 0;
  for (Index id = 0; id < n; ++id) {
    const Image flipped = random_once(RandomHorizontalFlip{}, image, id);
    CHECK((flipped == image || flipped == hflip(image)));
    flips += flipped != image;
    seldom += random_once(RandomVerticalFlip{.p = 0.1}, image, id) == vflip(image);
  }
  CHECK(flips == Approx(n / 2).margin(60));
  CHECK(seldom == Approx(n / 10).margin(35));

  // A level of 100 under brightness 0.4 becomes 60 to 140; a list of one adjustment is that with a factor in its range.
  const Image grey{1, 1, 1, {100}};
  int least = 255, most = 0;
  for (Index id = 0; id < n; ++id) {
    const int level = random_once(ColorJitter{.brightness = 0.4}, grey, id).pixels[0];
    least = std::min(least, level);
    most = std::max(most, level);
  }
  CHECK((least >= 60 && least < 63 && most > 137 && most < 140));
  for (image = {16, 16, 3, Bytes(768)}; std::uint8_t & level : image.pixels)
    level = static_cast<std::uint8_t>(r.below(256));
  const auto distinct = [&](const ColorJitter& jitter) {
    std::set<Bytes> results;
    for (Index id = 0; id < 100; ++id) results.insert(random_once(jitter, image, id).pixels);
    return results.size();
  };
  CHECK(distinct({}) == 1);
  CHECK(distinct({.contrast = 0.5}) > 90);
  CHECK(distinct({.saturation = 0.5}) > 90);
  CHECK(distinct({.hue = 0.5}) > 90);
  // All four, in any order: one of the 24 explains each result, and most of them come.
  std::map<std::array<int, 4>, int> orders;
  for (Index id = 0; id < 100; ++id) {
    const Image made = random_once(ColorJitter{0.3, 0.4, 0.5, 0.2}, image, id);
    std::array<int, 4> order{0, 1, 2, 3};
    int explained = 0;
    do {
      TransformRandom random({.seed = 5}, id, 0);
      for (Index k = 4; k > 1; --k) random.below(k);
      Image step = image;
      for (const int which : order) {
        const double u = 2 * random.uniform() - 1;
        step = which == 0   ? adjust_brightness(step, 1 + 0.3 * u)
               : which == 1 ? adjust_contrast(step, 1 + 0.4 * u)
               : which == 2 ? adjust_saturation(step, 1 + 0.5 * u)
                            : adjust_hue(step, 0.2 * u);
      }
      int most_apart = 0;  // rounding of the factors
      for (std::size_t i = 0; i < made.pixels.size(); ++i)
        most_apart = std::max(most_apart, std::abs(made.pixels[i] - step.pixels[i]));
      if (most_apart > 1) continue;
      ++explained;
      ++orders[order];
    } while (std::next_permutation(order.begin(), order.end()));
    CHECK(explained == 1);
  }
  CHECK(orders.size() > 18);

  // Crops of a padded image come from all places.
  image = {4, 5, 1, Bytes(20)};
  std::iota(image.pixels.begin(), image.pixels.end(), std::uint8_t{1});
  std::map<Bytes, int> crops;
  for (Index id = 0; id < n; ++id) ++crops[random_once(RandomCrop{4, 5, 1, 200}, image, id).pixels];
  CHECK(crops.size() == 9);
  for (Index top = -1; top <= 1; ++top)
    for (Index left = -1; left <= 1; ++left)
      CHECK(crops[crop(pad(image, 1, PaddingMode::constant, 200), top + 1, left + 1, 4, 5).pixels] > n / 20);

  image = {30, 40, 1, Bytes(1200, 255)};
  double area = 0;
  for (Index id = 0; id < n; ++id) {
    const Image erased = random_once(RandomErasing{.p = 1, .scale = {0.1, 0.3}}, image, id);
    const double share = static_cast<double>(std::ranges::count(erased.pixels, 0)) / 1200;
    CHECK((share > 0.08 && share < 0.32));
    area += share;
    const Image rotated = random_once(RandomRotation{10}, image, id);
    CHECK(std::ranges::count(rotated.pixels, 0) < 400);
    CHECK(random_once(RandomResizedCrop{7, 9}, image, id) == Image{7, 9, 1, Bytes(63, 255)});
  }
  CHECK(area / n == Approx(0.2).margin(0.01));
}

TEST_CASE("what lists of transforms cannot do is refused when they are made") {
  const Dataset data = Synthetic({.size = 6, .shape = {8, 9, 3}});
  CHECK(transformed(data, {Resize{4}})->shape() == Shape{4, 4, 3});
  CHECK(transformed(data, {Resize{16}})->shape() == Shape{16, 18, 3});
  CHECK(transformed(data, {CenterCrop{12}, Grayscale{}})->shape() == Shape{12, 12, 1});
  CHECK(transformed(data, {})->shape() == data->shape());
  CHECK(transformed(head(data, 0), {Pad{1}})->shape() == Shape{10, 11, 3});
  const auto refused = [&](const ImageTransform& f, const char* why) {
    CHECK_ERROR(transformed(data, {f}), usage, why);
  };
  refused(RandomCrop{10}, "RandomCrop");
  refused(Resize{}, "resize");
  refused(Pad{8, 0, PaddingMode::reflect}, "pad");
  refused(Pad{-1}, "-1");
  refused(ColorJitter{.brightness = -1}, "ColorJitter");
  refused(ColorJitter{.hue = 0.6}, "0.6");
  refused(RandomResizedCrop{4, 4, {0.5, 0.2}}, "[0.5, 0.2]");
  refused(RandomErasing{.p = 1, .value = {1, 2}}, "erase");
  refused(GaussianBlur{4}, "kernel_size");
  refused(Grayscale{2}, "2");
  refused(
      [](Image image, TransformRandom&) {
        ++image.height;
        return image;
      },
      "216");
  refused({}, "a transform is an empty function");
  CHECK_ERROR(transformed(Synthetic({.shape = {9}}), {}), usage, "[9]", "[height, width, channels]");
  CHECK_ERROR(transformed({}, {}), usage, "transformed");
  // What is not of one shape is found where it is read.
  const Dataset uneven = transformed(
      data, {[](Image image, TransformRandom& random) { return crop(image, 0, 0, 1 + random.below(8), 4); }});
  CHECK_ERROR(
      [&] {
        for (Index id = 0; id < 6; ++id) read(uneven, id, {.epoch = 1});
      }(),
      data, "transformed", "synthetic");
  CHECK_ERROR(adjust_hue({1, 1, 2, {0, 0}}, 0), usage, "adjust_hue", 2);
  CHECK_ERROR(adjust_contrast({1, 1, 1, {0}}, -1), usage, "adjust_contrast", -1);
  CHECK_ERROR(rotate({}, 1), usage, "rotate", 0);
  CHECK_ERROR(erase({2, 2, 1, Bytes(4)}, 1, 0, 2, 1, {0}), usage, 2);
  CHECK_ERROR(resized_crop({2, 2, 1, Bytes(4)}, {.left = 1, .width = 2, .height = 1}, 1, 1), usage, "resized_crop", 2);
}

TEST_CASE("with_scale is Normalize, and says what numbers it wants") {
  const Dataset data = Synthetic({.size = 6, .shape = {8, 9, 3}});
  const Dataset grey = transformed(data, {Grayscale{}});
  const PixelScale three{{0.1f, 0.2f, 0.3f}, {1, 2, 4}};
  CHECK_ERROR(with_scale(grey, three), usage, 3, 1);
  CHECK_ERROR(with_scale(data, {{0}, {0}}), usage, "std", 0);
  CHECK_ERROR(Loader(transformed(with_scale(data, three), {Grayscale{}})), usage, "loader", "with_scale");
  const Dataset scaled = with_scale(data, three);
  Loader loader(scaled, {.batch = 6});
  const auto x = (*loader.begin()).x.to_vector<float>();
  for (Index id = 0; id < 6; ++id) {
    const Bytes pixels = read(data, id);
    for (std::size_t i = 0; i + 1 < pixels.size(); ++i)
      REQUIRE(x[static_cast<std::size_t>(id) * 216 + i] ==
              (static_cast<float>(pixels[i]) / 255 - three.mean[i % 3]) / three.std[i % 3]);
  }
}

TEST_CASE("a second view of a data set draws numbers of its own") {
  const Dataset data = InMemory({.name = "ramps",
                                 .shape = {8, 8, 1},
                                 .classes = 1,
                                 .pixels =
                                     [] {
                                       std::vector<std::uint8_t> p(64 * 20);
                                       for (std::size_t i = 0; i < p.size(); ++i)
                                         p[i] = static_cast<std::uint8_t>(7 * i);
                                       return p;
                                     }(),
                                 .labels = std::vector<std::uint8_t>(20)});
  const auto view = [&](Index n) { return as_tensors(transformed(data, {RandomCrop{5}, RandomHorizontalFlip{}}, n)); };
  const Dataset both = zip_datasets(view(0), {{"same", view(0)}, {"other", view(1)}});
  int alike = 0;
  for (Index id = 0; id < both->size(); ++id) {
    const Sample s = sample_of(both, id, {.seed = 3});
    CHECK(s.x.to_vector() == s.x.at("same").to_vector());
    alike += s.x.to_vector() == s.x.at("other").to_vector();
  }
  CHECK(alike < 6);
  CHECK_ERROR(view(-1), usage, "transformed", -1);
  CHECK_ERROR(transformed(data, {RandomHorizontalFlip{.p = 7}}), usage, "random", 7);
}

}  // namespace test_transforms
