#include "datasets/formats/cifar.h"

#include "datasets/core/in_memory.h"
#include "datasets/formats/data_paths.h"
#include "framework/io/file.h"

namespace trireme {
namespace {

constexpr std::size_t plane = 32 * 32, image = 3 * plane;
constexpr std::size_t most_bytes = std::size_t{1} << 30;  // largest file that is read; the data sets' largest has 154
                                                          // MB

Dataset open_cifar(const std::string& name, const std::string& split, const std::string& root,
                   const std::string& archive, const std::vector<std::string>& training, const std::string& test,
                   Index classes, PixelScale scale) {
  check(split == "train" || split == "test", name, "split is '{}', it must be train or test", split);
  auto folders = root.empty() ? data_folders(archive) : std::vector{root, root + "/" + archive};
  const std::string remedy = "unpack its binary version and give its folder as --data.root";
  InMemoryOptions all{
      .name = name, .shape = {32, 32, 3}, .classes = classes, .scale = std::move(scale), .pixels = {}, .labels = {}};
  for (const std::string& file : split == "train" ? training : std::vector{test}) {
    const std::string path = find_data_file(folders, file, name, remedy);
    const std::string bytes = read_text(path, most_bytes);
    const Cifar part = parse_cifar(std::as_bytes(std::span(bytes)), classes, path);
    all.labels.insert(all.labels.end(), part.labels.begin(), part.labels.end());
    all.pixels.insert(all.pixels.end(), part.pixels.begin(), part.pixels.end());
  }
  return InMemory(std::move(all));
}

}  // namespace

Cifar parse_cifar(std::span<const std::byte> bytes, Index classes, const std::string& source) {
  constexpr Index with_coarse = 100;
  const std::size_t labels = classes == with_coarse ? 2 : 1, record = labels + image;
  check(!bytes.empty() && bytes.size() % record == 0, ErrorKind::data, "cifar",
        "{}: has {} bytes, not a whole number of records of {}: truncated, or not the binary version", source,
        bytes.size(), record);
  Cifar all;
  const std::size_t n = bytes.size() / record;
  all.labels.resize(n);
  all.pixels.resize(n * image);
  for (std::size_t i = 0; i < n; ++i) {
    const auto* from = reinterpret_cast<const std::uint8_t*>(bytes.data()) + i * record;
    all.labels[i] = from[labels - 1];
    check(all.labels[i] < classes, ErrorKind::data, "cifar", "{}: label {} of record {} is outside [0, {})", source,
          int(all.labels[i]), i, classes);
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
