#include "datasets/formats/mnist.h"

#include "datasets/core/in_memory.h"
#include "datasets/formats/data_paths.h"
#include "datasets/formats/idx.h"

namespace trireme {
namespace {

constexpr Index digits = 10;

Dataset open_idx(const std::string& name, const std::string& split, const std::vector<std::string>& folders,
                 PixelScale scale, const std::string& remedy) {
  check(split == "train" || split == "test", name, "split is '{}', it must be train or test", split);
  const std::string prefix = split == "train" ? "train" : "t10k";
  const std::string image_path = find_data_file(folders, prefix + "-images-idx3-ubyte", name, remedy);
  const std::string label_path = find_data_file(folders, prefix + "-labels-idx1-ubyte", name, remedy);
  Idx images = read_idx(image_path), labels = read_idx(label_path);
  check(images.extents.size() == 3, ErrorKind::data, name, "{}: magic is 0x{:08x}, an image file has 0x00000803",
        image_path, 0x800 + images.extents.size());
  check(labels.extents.size() == 1, ErrorKind::data, name, "{}: magic is 0x{:08x}, a label file has 0x00000801",
        label_path, 0x800 + labels.extents.size());
  check(images.extents[0] == labels.extents[0], ErrorKind::data, name, "{} holds {} images, but {} holds {} labels",
        image_path, images.extents[0], label_path, labels.extents[0]);
  const Shape shape{images.extents[1], images.extents[2], 1};
  check(shape.numel() > 0, ErrorKind::data, name, "{}: its images are {} x {} pixels", image_path, shape[0], shape[1]);
  for (std::size_t i = 0; i < labels.values.size(); ++i)
    check(labels.values[i] < digits, ErrorKind::data, name, "{}: label {} of sample {} is outside [0, {})", label_path,
          int(labels.values[i]), i, digits + 0);
  return InMemory({.name = name,
                   .shape = shape,
                   .classes = digits,
                   .scale = std::move(scale),
                   .pixels = std::move(images.values),
                   .labels = std::move(labels.values)});
}

}  // namespace

Dataset Mnist(const std::string& split, const std::string& root) {
  const auto folders = root.empty() ? data_folders("mnist") : std::vector(1, root);
  return open_idx("mnist", split, folders, {{0.1307f}, {0.3081f}}, "give the folder that holds the four files");
}

Dataset FashionMnist(const std::string& split, const std::string& root) {
  auto folders = root.empty() ? data_folders("fashion-mnist") : std::vector(1, root);
  if (root.empty()) folders.emplace_back("/usr/share/datasets/fashion-mnist");
  return open_idx("fashion_mnist", split, folders, {{0.2860f}, {0.3530f}},
                  "install Debian's package dataset-fashion-mnist, or give the folder that holds the four files");
}

}  // namespace trireme
