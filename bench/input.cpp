// Images per second that one core reads, decodes, crops, resizes to 224 and normalises, beside a plain decode of the
// same files by libjpeg. Rounds are interleaved (A B C A B C ...); medians, and the spread in brackets.
//   input [--rounds N] [--images N] [--quality Q] [--root DIR]     DIR: JPEG files, in any folders; else images are
//   made
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>

#include "bench/measure.h"
#include "datasets/core/pixels.h"
#include "datasets/formats/image_folder.h"
#include "datasets/images/image_reader.h"
#include "framework/io/file.h"
#include "kernels/core/random.h"
#include "tests/datasets/image_files.h"
#include "trireme/trireme.h"
using namespace trireme;

namespace {

using Files = std::vector<std::vector<std::byte>>;

class InMemoryFiles final : public EncodedSource {
 public:
  explicit InMemoryFiles(const Files& files) : files_(files) {}
  std::string name() const override { return "held in memory"; }
  Index size() const override { return std::ssize(files_); }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::int64_t label(Index) const override { return 0; }
  std::string describe(Index id) const override { return fmt::format("image {}", id); }
  void read(Index id, std::vector<std::byte>& bytes) const override { bytes = files_[static_cast<std::size_t>(id)]; }

 private:
  const Files& files_;
  std::vector<std::string> classes_{"thing"};
};

/// Of this thread alone: what others do on the machine counts less.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// 500 x 375, with as much at each scale as photographs have (amplitude falls as the wave length), and sensor noise.
test::Bytes made_photo(std::uint64_t seed) {
  constexpr int width = 500, height = 375;
  std::vector<double> sums(std::size_t{width} * height * 3, 128);
  const Philox random{mix(seed, 0x9407)};
  for (int wave = 256, octave = 0; wave >= 1; wave /= 2, ++octave)
    for (int y = 0; y < height; ++y)
      for (int x = 0; x < width; ++x) {
        const auto knot = [&](int i, int j) {
          return random(static_cast<std::uint64_t>(octave), static_cast<std::uint64_t>(j * 4096 + i));
        };
        const int i = x / wave, j = y / wave;
        const double u = static_cast<double>(x % wave) / wave, v = static_cast<double>(y % wave) / wave;
        const auto a = knot(i, j), b = knot(i + 1, j), c = knot(i, j + 1), d = knot(i + 1, j + 1);
        for (std::size_t k = 0; k < 3; ++k) {
          // Two thirds of a photograph's contrast is shared by its colours.
          const auto value = [&](const auto& words) {
            return uniform_float(words[3]) + 0.5 * uniform_float(words[k]) - 0.75;
          };
          const double mixed = (1 - v) * ((1 - u) * value(a) + u * value(b)) + v * ((1 - u) * value(c) + u * value(d));
          sums[(static_cast<std::size_t>(y) * width + static_cast<std::size_t>(x)) * 3 + k] +=
              mixed * 10 * std::pow(wave, 0.6);
        }
      }
  test::Bytes pixels;
  for (double sum : sums) pixels.push_back(static_cast<std::uint8_t>(std::clamp(sum, 0.0, 255.0)));
  return pixels;
}

struct Row {
  std::string name;
  std::function<void(Index id)> run;
  std::vector<double> rates = {};
};

}  // namespace

int input_main(int argc, char** argv) {
  std::map<std::string, std::string> options{
      {"--rounds", "7"}, {"--images", "64"}, {"--quality", "92"}, {"--root", ""}};
  for (int i = 1; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
  if (!options["--list"].empty()) {
    for (int i = 0; i < 2; ++i) {
      const double start = cpu_seconds();
      const auto wall = std::chrono::steady_clock::now();
      const Index files = image_folder(options["--list"], "train")->size();
      std::printf("%ld files listed in %.2f s (%.2f s of CPU)\n", static_cast<long>(files),
                  std::chrono::duration<double>(std::chrono::steady_clock::now() - wall).count(),
                  cpu_seconds() - start);
    }
    return 0;
  }
  Files files;
  const auto wanted = static_cast<std::size_t>(std::stoi(options["--images"]));
  if (options["--root"].empty()) {
    for (std::size_t i = 0; i < wanted; ++i) {
      const test::Bytes file =
          test::jpeg(made_photo(i), 500, 375, {.quality = std::stoi(options["--quality"]), .sampling = 2});
      const auto bytes = std::as_bytes(std::span(file));
      files.emplace_back(bytes.begin(), bytes.end());
    }
  } else {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(options["--root"]))
      if (const auto end = entry.path().extension();
          (end == ".jpg" || end == ".jpeg" || end == ".JPEG") && files.size() < wanted)
        files.push_back(read_bytes(entry.path()));
  }
  double bytes = 0;
  for (const auto& file : files) bytes += static_cast<double>(file.size());
  const auto images = static_cast<double>(files.size());
  std::printf("%.0f images of %.0f kB on average, one thread\n", images, bytes / images / 1000);

  const Dataset train = Images(std::make_unique<InMemoryFiles>(files), {.augment = true}),
                test = Images(std::make_unique<InMemoryFiles>(files));
  const PixelConverter convert = pixel_converter(train->scale(), train->shape(), DType::f32);
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(train->shape().numel()));
  std::vector<std::byte> floats(pixels.size() * sizeof(float));
  JpegDecoder jpeg;
  PixelBlock block;
  Index epoch = 0;
  std::vector<Row> rows{
      {"random crop, resized, flipped, normalised",
       [&](Index id) {
         train->read(id, pixels, {.seed = 1, .epoch = epoch});
         convert(pixels, floats.data());
       }},
      {"centre, resized, normalised",
       [&](Index id) {
         test->read(id, pixels, {});
         convert(pixels, floats.data());
       }},
      {"whole image decoded, nothing more",
       [&](Index id) {
         const auto& file = files[static_cast<std::size_t>(id)];
         jpeg.decode(jpeg.open(file, "file", most_pixels), 1, 3, block, "file");
       }},
      {"normalisation alone", [&](Index) { convert(pixels, floats.data()); }},
  };
  for (int round = -1; round < std::stoi(options["--rounds"]); ++round, ++epoch)
    for (Row& row : rows) {
      const double start = cpu_seconds();
      for (Index id = 0; id < std::ssize(files); ++id) row.run(id);
      const double seconds = cpu_seconds() - start;
      if (round >= 0) row.rates.push_back(images / seconds);  // the first warms up
    }
  for (Row& row : rows) {
    std::sort(row.rates.begin(), row.rates.end());
    std::printf("%-44s %7.0f images/s [%.0f, %.0f]\n", row.name.c_str(), row.rates[row.rates.size() / 2],
                row.rates.front(), row.rates.back());
  }
  return 0;
}
