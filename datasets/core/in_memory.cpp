#include "datasets/core/in_memory.h"

#include <cstring>

#include "datasets/core/fingerprint.h"

namespace trireme {
namespace {

class InMemoryDataset final : public DatasetSource {
 public:
  explicit InMemoryDataset(InMemoryOptions options) : all_(std::move(options)) {
    check(std::ssize(all_.pixels) == size() * all_.shape.numel(), ErrorKind::data, all_.name,
          "{} pixels for {} samples of {}", all_.pixels.size(), size(), all_.shape);
    for (std::size_t i = 0; i < all_.labels.size(); ++i)
      check(all_.labels[i] < all_.classes, ErrorKind::data, all_.name, "label {} of sample {} is outside [0, {})",
            int(all_.labels[i]), i, all_.classes);
  }
  std::string name() const override { return all_.name; }
  Index size() const override { return std::ssize(all_.labels); }
  Shape shape() const override { return all_.shape; }
  Index classes() const override { return all_.classes; }
  PixelScale scale() const override { return all_.scale; }
  std::string fingerprint() const override {
    Fingerprint all;
    all.add(std::as_bytes(std::span(all_.pixels)));
    all.add(std::as_bytes(std::span(all_.labels)));
    return all.text();
  }
  std::int64_t read(Index id, std::span<std::uint8_t> pixels, const AugmentKey&) const override {
    check_read(id, pixels);
    std::memcpy(pixels.data(), all_.pixels.data() + id * std::ssize(pixels), pixels.size());
    return all_.labels[static_cast<std::size_t>(id)];
  }

 private:
  InMemoryOptions all_;
};

}  // namespace

Dataset InMemory(InMemoryOptions options) { return std::make_unique<InMemoryDataset>(std::move(options)); }

}  // namespace trireme
