// Functions of images: as torchvision makes them.
#include "datasets/images/functional.h"

#include <filesystem>
#include <map>
#include <set>

#include "datasets/images/image.h"
#include "tests/datasets/random_images.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"

namespace test_functional {

using namespace trireme;
using namespace trireme::test;
using Bytes = std::vector<std::uint8_t>;

namespace {

/// A function of functional.h with its arguments as the oracle takes them, and its result.
struct Case {
  std::string line;
  Image given, made;
};
using MakeCase = std::function<Case(TransformRandom&)>;

/// The functions that take one number.
MakeCase by_number(const char* name, Image (*f)(Image, double), double low, double high) {
  return [=](TransformRandom& random) {
    const Image given = random_image(random);
    const double v = random.chance(0.2) ? (random.chance(0.5) ? low : high) : random.uniform(low, high);
    return Case{fmt::format("{} {}", name, v), given, f(given, v)};
  };
}
std::vector<MakeCase> geometry() {
  return {[](TransformRandom& r) {
            const Image g = random_image(r);
            const Index h = between(r, 1, 30), w = between(r, 1, 30);
            return Case{fmt::format("resize {} {}", h, w), g, resize(g, h, w)};
          },
          [](TransformRandom& r) {
            const Image g = random_image(r);
            const Index top = r.below(g.height), left = r.below(g.width), high = between(r, 1, g.height - top),
                        wide = between(r, 1, g.width - left), h = between(r, 1, 30), w = between(r, 1, 30);
            const Crop part{static_cast<double>(left), static_cast<double>(top), static_cast<double>(wide),
                            static_cast<double>(high)};
            return Case{fmt::format("resized_crop {} {} {} {} {} {}", top, left, high, wide, h, w), g,
                        resized_crop(g, part, h, w)};
          },
          [](TransformRandom& r) {
            const Image g = random_image(r);
            const Index top = between(r, -6, g.height - 1), left = between(r, -6, g.width - 1), h = between(r, 7, 30),
                        w = between(r, 7, 30);
            return Case{fmt::format("crop {} {} {} {}", top, left, h, w), g, crop(g, top, left, h, w)};
          },
          [](TransformRandom& r) {
            const Image g = random_image(r);
            const Index h = between(r, 1, 26), w = between(r, 1, 26);
            return Case{fmt::format("center_crop {} {}", h, w), g, center_crop(g, h, w)};
          },
          [](TransformRandom& r) {
            const Image g = random_image(r);
            const Padding by(r.below(4), r.below(5), r.below(4), r.below(5));
            const Index mode = r.below(4), fill = mode == 0 ? r.below(256) : 0;
            const char* const names[] = {"constant", "edge", "reflect", "symmetric"};
            return Case{fmt::format("pad {} {} {} {} {} {}", by.left, by.top, by.right, by.bottom, names[mode], fill),
                        g, pad(g, by, static_cast<PaddingMode>(mode), static_cast<std::uint8_t>(fill))};
          },
          [](TransformRandom& r) {
            const Image g = random_image(r);
            return Case{"hflip", g, hflip(g)};
          },
          [](TransformRandom& r) {
            const Image g = random_image(r);
            return Case{"vflip", g, vflip(g)};
          },
          [](TransformRandom& r) {
            const Image g = random_image(r);
            const double angle = r.chance(0.2) ? 90.0 * static_cast<double>(r.below(5) - 2) : r.uniform(-200, 200);
            return Case{fmt::format("rotate {}", angle), g, rotate(g, angle)};
          },
          [](TransformRandom& r) {
            const Image g = random_image(r);
            const Index top = r.below(g.height), left = r.below(g.width), h = between(r, 1, g.height - top),
                        w = between(r, 1, g.width - left);
            Bytes value(static_cast<std::size_t>(r.chance(0.5) ? g.channels : 1));
            std::string line = fmt::format("erase {} {} {} {}", top, left, h, w);
            for (std::uint8_t& v : value) {
              v = static_cast<std::uint8_t>(r.below(256));
              line += " " + std::to_string(int{v});
            }
            return Case{line, g, erase(g, top, left, h, w, value)};
          }};
}
std::vector<MakeCase> colours() {
  return {by_number("adjust_brightness", adjust_brightness, 0, 2),
          by_number("adjust_contrast", adjust_contrast, 0, 2),
          by_number("adjust_saturation", adjust_saturation, 0, 2),
          by_number("adjust_hue", adjust_hue, -0.5, 0.5),
          [](TransformRandom& r) {
            const Image g = random_image(r);
            const Index channels = r.chance(0.5) ? 3 : 1;
            return Case{fmt::format("to_grayscale {}", channels), g, to_grayscale(g, channels)};
          },
          [](TransformRandom& r) {
            const Image g = random_image(r);
            const Index size = 1 + 2 * r.below(4);
            const double sigma = r.uniform(0.1, 3);
            return Case{fmt::format("gaussian_blur {} {}", size, sigma), g, gaussian_blur(g, size, sigma)};
          }};
}

}  // namespace

TEST_CASE("functions of images are torchvision's, up to one grey level") {
  std::vector<MakeCase> functions = geometry();
  for (const MakeCase& f : colours()) functions.push_back(f);
  const Index repeats = 25;
  std::vector<Case> cases;
  std::string lines;
  Oracle oracle;
  for (const MakeCase& f : functions)
    for (Index i = 0; i < repeats; ++i) {
      TransformRandom random = numbers(std::ssize(cases));
      const Case& c = cases.emplace_back(f(random));
      const auto name = std::to_string(cases.size() - 1);
      lines += name + " " + c.line + "\n";
      oracle.put("in" + name,
                 Tensor::from(std::span(c.given.pixels), {c.given.height, c.given.width, c.given.channels}));
    }
  oracle.note("cases.txt", lines);
  if (!oracle.run("torch_transforms.py")) return;
  std::map<std::string, int> compared;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    for (const char* way : {"tensor", "pil"}) {
      const std::string name = way + std::to_string(i);
      if (!std::filesystem::exists(oracle.folder() / (name + ".npy"))) continue;
      const Tensor theirs = oracle.tensor(name);
      INFO(name << " of " << c.given.height << " x " << c.given.width << " x " << c.given.channels << ": " << c.line);
      REQUIRE(theirs.shape() == Shape{c.made.height, c.made.width, c.made.channels});
      REQUIRE(std::ssize(c.made.pixels) == theirs.numel());
      const auto levels = theirs.to_vector();
      double most = 0;
      for (std::size_t k = 0; k < levels.size(); ++k) most = std::max(most, std::abs(levels[k] - c.made.pixels[k]));
      const std::string function = c.line.substr(0, c.line.find(' '));
      const bool exact =
          std::set<std::string>{"crop", "center_crop", "pad", "hflip", "vflip", "erase"}.contains(function) ||
          (name.starts_with("pil") && function == "to_grayscale");
      CHECK(most <= (exact ? 0 : 1));
      ++compared[way + (" " + function)];
    }
  }
  CHECK(compared.size() == functions.size() + 9);
}

TEST_CASE("to_grayscale is what a decoder makes of the file") {
  for (Index i = 0; i < 10; ++i) {
    TransformRandom random = numbers(i);
    const Image image = random_image(random, 3);
    const auto file = encode_png(Tensor::from(std::span(image.pixels), {image.height, image.width, 3}));
    CHECK(to_grayscale(image).pixels == decode_image(file, 1, "F").to_vector<std::uint8_t>());
  }
}

}  // namespace test_functional
