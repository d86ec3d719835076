// A data set for the loader's tests, which counts what is read of it.
#pragma once
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "datasets/core/loader.h"

namespace trireme::test {

/// Sample id's pixels are id + 0, id + 1, ...; its label is id % 7. Counts reads, and may fail at one id.
class Counting final : public DatasetSource {
 public:
  explicit Counting(Index size, Shape shape = {2, 2, 1}, Index broken = -1)
      : size_(size), shape_(shape), broken_(broken) {}
  std::string name() const override { return "counting"; }
  Index size() const override { return size_; }
  Shape shape() const override { return shape_; }
  Index classes() const override { return 7; }
  PixelScale scale() const override {
    return shape_[-1] == 3 ? PixelScale{{0.5f, 0.25f, 0}, {1, 2, 4}} : PixelScale{{0.1307f}, {0.3081f}};
  }
  std::int64_t read(Index id, std::span<std::uint8_t> pixels, const AugmentKey&) const override {
    check(id != broken_, "counting", "sample {} is broken", id);
    ++reads;
    for (std::size_t i = 0; i < pixels.size(); ++i)
      pixels[i] = static_cast<std::uint8_t>(static_cast<std::size_t>(id) + i);
    return id % 7;
  }
  mutable std::atomic<Index> reads = 0;

 private:
  Index size_;
  Shape shape_;
  Index broken_;
};

inline Dataset counting(Index size, Index broken = -1) {
  return std::make_unique<Counting>(size, Shape{2, 2, 1}, broken);
}

inline std::vector<std::int64_t> ids(const Tensor& t) {
  return {t.data<std::int64_t>(), t.data<std::int64_t>() + t.numel()};
}

/// The ids of one pass, batch by batch.
inline std::vector<std::vector<std::int64_t>> pass(Loader& loader) {
  std::vector<std::vector<std::int64_t>> batches;
  for (Batch& batch : loader) batches.push_back(ids(batch.samples));
  return batches;
}

}  // namespace trireme::test
