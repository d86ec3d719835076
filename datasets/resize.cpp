#include <cmath>

#include "datasets/image.h"

namespace trireme {
namespace {

/// The inputs [begin, begin + weight.size()) that one output mixes.
struct Tap {
  Index begin;
  std::vector<float> weight;
};

/// Triangle filter: as wide as two inputs when growing, as two outputs when shrinking. Pixel centres lie at
/// half integers.
std::vector<Tap> triangle(Index from, Index to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to), width = std::max(scale, 1.0);
  std::vector<Tap> taps;
  for (Index i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    const Index begin = std::max<Index>(0, static_cast<Index>(centre - width + 0.5));
    const Index end = std::min(from, static_cast<Index>(centre + width + 0.5));
    Tap tap{begin, {}};
    double sum = 0;
    for (Index j = begin; j < end; ++j) {
      const double weight = std::max(0.0, 1 - std::abs(static_cast<double>(j) + 0.5 - centre) / width);
      tap.weight.push_back(static_cast<float>(weight));
      sum += weight;
    }
    for (float& weight : tap.weight) weight = static_cast<float>(weight / sum);
    taps.push_back(std::move(tap));
  }
  return taps;
}

}  // namespace

Tensor resize(const Tensor& image, Index height, Index width) {
  check(image && image.rank() == 3 && image.dtype() == DType::u8, "resize",
        "wants an image [height, width, channels] of u8, got {} of {}", image ? image.shape() : Shape{},
        image ? image.dtype() : DType::f32);
  check(image.numel() > 0, "resize", "the image {} is empty", image.shape());
  check(height > 0 && width > 0, "resize", "the new size is {} x {}, both must be at least 1", height, width);
  if (image.dim(0) == height && image.dim(1) == width) return image.clone();

  const Index channels = image.dim(2), rows = image.dim(0), line = width * channels;
  std::vector<float> wide(static_cast<std::size_t>(rows * line));  // [rows, width, channels]
  const auto across = triangle(image.dim(1), width);
  for (Index y = 0; y < rows; ++y) {
    const std::uint8_t* from = image.data<std::uint8_t>() + y * image.dim(1) * channels;
    float* to = wide.data() + y * line;
    for (const Tap& tap : across)
      for (Index c = 0; c < channels; ++c) {
        float sum = 0;
        for (std::size_t j = 0; j < tap.weight.size(); ++j)
          sum += tap.weight[j] * from[(tap.begin + static_cast<Index>(j)) * channels + c];
        *to++ = sum;
      }
  }

  Tensor result = Tensor::empty({height, width, channels}, DType::u8);
  std::uint8_t* to = result.data<std::uint8_t>();
  std::vector<float> sums(static_cast<std::size_t>(line));
  for (const Tap& tap : triangle(rows, height)) {
    std::fill(sums.begin(), sums.end(), 0.5f);  // rounds
    for (std::size_t j = 0; j < tap.weight.size(); ++j) {
      const float* from = wide.data() + (tap.begin + static_cast<Index>(j)) * line;
      for (Index i = 0; i < line; ++i) sums[static_cast<std::size_t>(i)] += tap.weight[j] * from[i];
    }
    for (float sum : sums) *to++ = static_cast<std::uint8_t>(std::clamp(sum, 0.0f, 255.0f));
  }
  return result;
}

}  // namespace trireme
