#include "datasets/core/dataset.h"

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

}  // namespace trireme
