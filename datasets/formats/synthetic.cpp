#include "datasets/formats/synthetic.h"

#include <algorithm>
#include <array>

#include "datasets/core/tensors.h"
#include "kernels/core/random.h"

namespace trireme {
namespace {

void check_options(const SyntheticOptions& options) {
  check(options.size >= 0, "synthetic", "size is {}, it must not be negative", options.size);
  check(options.classes >= 1, "synthetic", "classes is {}, it must be at least 1", options.classes);
  check(std::all_of(options.shape.begin(), options.shape.end(), [](Index n) { return n > 0; }), "synthetic",
        "shape is {}, every extent must be at least 1", options.shape);
}

/// pixel = (prototype of the class + 3 x noise of the sample) / 4. Both are uniform bytes, drawn when they are read, so
/// a data set of any shape needs no memory.
class SyntheticDataset final : public DatasetSource {
 public:
  explicit SyntheticDataset(const SyntheticOptions& options) : options_(options) { check_options(options); }
  std::string name() const override { return "synthetic"; }
  Index size() const override { return options_.size; }
  Shape shape() const override { return options_.shape; }
  Index classes() const override { return options_.classes; }
  PixelScale scale() const override {
    // Variance: (1 + 9) / 16 of a uniform byte's variance, which is 1/12 of the squared full scale.
    return {{0.5f}, {0.2282f}};
  }
  std::int64_t read(Index id, std::span<std::uint8_t> pixels, const AugmentKey&) const override {
    check_read(id, pixels);
    const Philox labels{mix(options_.seed, 1)}, prototypes{mix(options_.seed, 2)}, noises{mix(options_.seed, 3)};
    const auto sample = static_cast<std::uint64_t>(options_.first + id);
    const std::uint64_t label = labels(0, sample)[0] % static_cast<std::uint64_t>(options_.classes);
    constexpr std::size_t block = 16;  // bytes per Philox call
    for (std::size_t at = 0; at < pixels.size(); at += block) {
      const auto prototype = std::bit_cast<std::array<std::uint8_t, block>>(prototypes(label, at));
      const auto noise = std::bit_cast<std::array<std::uint8_t, block>>(noises(sample, at));
      const std::size_t n = std::min(block, pixels.size() - at);
      for (std::size_t i = 0; i < n; ++i) pixels[at + i] = static_cast<std::uint8_t>((prototype[i] + 3 * noise[i]) / 4);
    }
    return static_cast<std::int64_t>(label);
  }

 private:
  SyntheticOptions options_;
};

/// Labels and noise of each pixel are drawn when they are read.
class DenseSynthetic final : public TensorSource {
 public:
  explicit DenseSynthetic(const SyntheticOptions& options) : options_(options) { check_options(options); }
  std::string name() const override { return "synthetic"; }
  Index size() const override { return options_.size; }
  Shape shape() const override { return options_.shape; }
  Index classes() const override { return options_.classes; }
  Sample sample(Index id, const AugmentKey&) const override {
    check_id(id);
    const Shape& shape = options_.shape;
    const Tensor x = Tensor::empty(shape), y = Tensor::empty(shape.without(shape.rank() - 1), DType::i64);
    const Philox random{mix(options_.seed, 1)};
    const auto number = static_cast<std::uint64_t>(options_.first + id);
    const auto classes = static_cast<std::uint64_t>(options_.classes);
    const Index channels = shape[-1];
    for (Index i = 0; i < y.numel(); ++i) {
      const auto drawn = random(number, static_cast<std::uint64_t>(i));
      const std::uint64_t label = drawn[0] % classes;
      y.data<std::int64_t>()[i] = static_cast<std::int64_t>(label);
      for (Index c = 0; c < channels; ++c) {
        const double noise = static_cast<double>(drawn[static_cast<std::size_t>(1 + c % 3)]) * 0x1p-32;
        x.data<float>()[i * channels + c] =
            static_cast<float>((static_cast<double>(label) + noise) / static_cast<double>(classes));
      }
    }
    return {x, y};
  }

 private:
  SyntheticOptions options_;
};

}  // namespace

Dataset Synthetic(const SyntheticOptions& options) {
  if (options.dense) return std::make_unique<DenseSynthetic>(options);
  return std::make_unique<SyntheticDataset>(options);
}

}  // namespace trireme
