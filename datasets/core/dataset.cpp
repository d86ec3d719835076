#include "datasets/core/dataset.h"

#include "datasets/core/tensors.h"

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

Sample DatasetSource::sample(Index, const AugmentKey&) const {
  fail(name(), "samples are pictures: read() gives them");
}
Sample DatasetSource::batch(std::span<const std::int64_t> ids, const AugmentKey& draw) const {
  std::vector<Sample> all;
  for (const Index id : ids) all.push_back(sample(id, draw));
  if (!all.empty()) return stack_samples(all);
  if (size() == 0) fail(name(), "there is no sample");
  const Sample one = stack_samples({sample(0, draw)});  // which tells shapes and types
  return {one.x.view_rows(0, 0), one.y ? one.y.view_rows(0, 0) : one.y};
}

DatasetWrapper::DatasetWrapper(Dataset data, std::string_view op) : data_(std::move(data)) {
  check(bool(data_), op, "there is no dataset");
}

Dataset head(Dataset all, Index n) { return std::make_unique<Head>(std::move(all), n); }

}  // namespace trireme
