#include "datasets/formats/cifar.h"

#include <cstring>
#include <filesystem>

#include "datasets/core/files.h"
#include "datasets/formats/folders.h"

namespace trireme {
namespace {

constexpr std::size_t plane = 32 * 32, image = 3 * plane;

class CifarDataset final : public DatasetSource {
 public:
  CifarDataset(std::string name, const std::vector<std::string>& paths, Index classes, PixelScale scale)
      : name_(std::move(name)), classes_(classes), scale_(std::move(scale)) {
    for (const std::string& path : paths) {
      Cifar part = parse_cifar(read_bytes(path), classes, path);
      all_.labels.insert(all_.labels.end(), part.labels.begin(), part.labels.end());
      all_.pixels.insert(all_.pixels.end(), part.pixels.begin(), part.pixels.end());
    }
  }
  std::string name() const override { return name_; }
  Index size() const override { return std::ssize(all_.labels); }
  Shape shape() const override { return {32, 32, 3}; }
  Index classes() const override { return classes_; }
  PixelScale scale() const override { return scale_; }
  std::int64_t read(Index id, std::span<std::uint8_t> pixels, const AugmentKey&) const override {
    check(id >= 0 && id < size(), name_, "sample {} is outside [0, {})", id, size());
    check(pixels.size() == image, name_, "room for {} pixels, a sample has {}", pixels.size(), image + 0);
    std::memcpy(pixels.data(), all_.pixels.data() + static_cast<std::size_t>(id) * image, image);
    return all_.labels[static_cast<std::size_t>(id)];
  }

 private:
  std::string name_;
  Index classes_;
  PixelScale scale_;
  Cifar all_;
};

Dataset open_cifar(const std::string& name, const std::string& split, const std::string& root,
                   const std::string& archive, const std::vector<std::string>& training, const std::string& test,
                   Index classes, PixelScale scale) {
  check(split == "train" || split == "test", name, "split is '{}', it must be train or test", split);
  auto folders = root.empty() ? data_folders(archive) : std::vector{root, root + "/" + archive};
  const std::string remedy = "unpack its binary version and give its folder as --data.root";
  std::vector<std::string> paths;
  for (const std::string& file : split == "train" ? training : std::vector{test})
    paths.push_back(find_data_file(folders, file, name, remedy));
  return std::make_shared<CifarDataset>(name, paths, classes, std::move(scale));
}

}  // namespace

Cifar parse_cifar(std::span<const std::byte> bytes, Index classes, const std::string& source) {
  constexpr Index with_coarse = 100;
  const std::size_t labels = classes == with_coarse ? 2 : 1, record = labels + image;
  check(!bytes.empty() && bytes.size() % record == 0, "cifar",
        "{}: has {} bytes, not a whole number of records of {}: truncated, or not the binary version", source,
        bytes.size(), record);
  Cifar all;
  const std::size_t n = bytes.size() / record;
  all.labels.resize(n), all.pixels.resize(n * image);
  for (std::size_t i = 0; i < n; ++i) {
    const auto* from = reinterpret_cast<const std::uint8_t*>(bytes.data()) + i * record;
    all.labels[i] = from[labels - 1];
    check(all.labels[i] < classes, "cifar", "{}: label {} of record {} is outside [0, {})", source, int(all.labels[i]),
          i, classes);
    std::uint8_t* to = all.pixels.data() + i * image;
    for (std::size_t p = 0; p < plane; ++p)
      for (std::size_t c = 0; c < 3; ++c) to[3 * p + c] = from[labels + c * plane + p];
  }
  return all;
}

Dataset Cifar10(const std::string& split, const std::string& root) {
  return open_cifar(
      "cifar10", split, root, "cifar-10-batches-bin",
      {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
      "test_batch.bin", 10, {{0.4914f, 0.4822f, 0.4465f}, {0.2470f, 0.2435f, 0.2616f}});
}

Dataset Cifar100(const std::string& split, const std::string& root) {
  return open_cifar("cifar100", split, root, "cifar-100-binary", {"train.bin"}, "test.bin", 100,
                    {{0.5071f, 0.4865f, 0.4409f}, {0.2673f, 0.2564f, 0.2762f}});
}

}  // namespace trireme
