#include "datasets/core/dataset.h"

#include <cmath>

namespace trireme {
namespace {

class Head final : public DatasetWrapper {
 public:
  Head(Dataset all, Index n) : DatasetWrapper(std::move(all), "head"), size_(n) {
    check(
        n >= 0 && n <= data_->size(), "head", "{} samples asked for, {} has {}", n, [&] { return data_->name(); },
        data_->size());
  }
  Index size() const override { return size_; }
  std::int64_t read(Index id, std::span<std::uint8_t> pixels, const AugmentKey& draw) const override {
    check_read(id, pixels);
    return data_->read(id, pixels, draw);
  }

 private:
  Index size_;
};

class WithScale final : public DatasetWrapper {
 public:
  WithScale(Dataset data, PixelScale scale) : DatasetWrapper(std::move(data), "with_scale"), scale_(std::move(scale)) {
    const Shape shape = data_->shape();
    const Index channels = shape.rank() == 0 ? 1 : shape[-1];
    for (const auto* numbers : {&scale_.mean, &scale_.std}) {
      check(numbers->size() == 1 || std::ssize(*numbers) == channels, "with_scale",
            "{} numbers for {} channels: give one, or one per channel", numbers->size(), channels);
      for (const float v : *numbers)
        check(std::isfinite(v) && (v != 0 || numbers == &scale_.mean), "with_scale", "a {} is {}",
              numbers == &scale_.mean ? "mean" : "std", v);
    }
  }
  PixelScale scale() const override { return scale_; }

 private:
  PixelScale scale_;
};

}  // namespace

void DatasetSource::check_read(Index id, std::span<const std::uint8_t> pixels) const {
  if (id < 0 || id >= size()) fail(name(), "sample {} is outside [0, {})", id, size());
  if (std::ssize(pixels) != shape().numel())
    fail(name(), "room for {} pixels, a sample has {}", pixels.size(), shape().numel());
}

DatasetWrapper::DatasetWrapper(Dataset data, std::string_view op) : data_(std::move(data)) {
  check(bool(data_), op, "there is no dataset");
  check(data_->tensors() == nullptr, op, "samples are tensors, not pictures: subset() and map_samples() are for them");
}

Dataset head(Dataset all, Index n) { return std::make_unique<Head>(std::move(all), n); }
Dataset with_scale(Dataset data, PixelScale scale) {
  return std::make_unique<WithScale>(std::move(data), std::move(scale));
}

}  // namespace trireme
