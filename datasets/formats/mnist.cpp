// MNIST (LeCun, Cortes and Burges, 1998) and Fashion-MNIST (Xiao, Rasul and Vollgraf, arXiv 1708.07747): the
// same four files.
#include <cstring>

#include "datasets/formats/datasets.h"
#include "datasets/formats/folders.h"

namespace trireme {
namespace {

constexpr Index digits = 10;

/// Images and labels held in memory, as the files have them.
class IdxDataset final : public DatasetSource {
 public:
  IdxDataset(std::string name, const std::string& image_path, const std::string& label_path, PixelScale scale)
      : name_(std::move(name)), scale_(std::move(scale)), images_(read_idx(image_path)), labels_(read_idx(label_path)) {
    check(images_.extents.size() == 3, name_, "{}: magic is 0x{:08x}, an image file has 0x00000803", image_path,
          0x800 + images_.extents.size());
    check(labels_.extents.size() == 1, name_, "{}: magic is 0x{:08x}, a label file has 0x00000801", label_path,
          0x800 + labels_.extents.size());
    check(images_.extents[0] == labels_.extents[0], name_, "{} holds {} images, but {} holds {} labels", image_path,
          images_.extents[0], label_path, labels_.extents[0]);
    shape_ = {images_.extents[1], images_.extents[2], 1};
    check(shape_.numel() > 0, name_, "{}: its images are {} x {} pixels", image_path, shape_[0], shape_[1]);
    for (std::size_t i = 0; i < labels_.values.size(); ++i)
      check(labels_.values[i] < digits, name_, "{}: label {} of sample {} is outside [0, {})", label_path,
            int(labels_.values[i]), i, digits + 0);
  }
  std::string name() const override { return name_; }
  Index size() const override { return images_.extents[0]; }
  Shape shape() const override { return shape_; }
  Index classes() const override { return digits; }
  PixelScale scale() const override { return scale_; }
  std::int64_t read(Index id, std::span<std::uint8_t> pixels, const AugmentKey&) const override {
    check(id >= 0 && id < size(), name_, "sample {} is outside [0, {})", id, size());
    check(std::ssize(pixels) == shape_.numel(), name_, "room for {} pixels, a sample has {}", pixels.size(),
          shape_.numel());
    std::memcpy(pixels.data(), images_.values.data() + id * shape_.numel(), pixels.size());
    return labels_.values[static_cast<std::size_t>(id)];
  }

 private:
  std::string name_;
  PixelScale scale_;
  Idx images_, labels_;
  Shape shape_;
};

Dataset open_idx(const std::string& name, const std::string& split, const std::vector<std::string>& folders,
                 PixelScale scale, const std::string& remedy) {
  check(split == "train" || split == "test", name, "split is '{}', it must be train or test", split);
  const std::string prefix = split == "train" ? "train" : "t10k";
  const std::string images = find_data_file(folders, prefix + "-images-idx3-ubyte", name, remedy);
  const std::string labels = find_data_file(folders, prefix + "-labels-idx1-ubyte", name, remedy);
  return std::make_shared<IdxDataset>(name, images, labels, std::move(scale));
}

}  // namespace

Dataset Mnist(const std::string& split, const std::string& root) {
  const auto folders = root.empty() ? data_folders("mnist") : std::vector{root};
  return open_idx("mnist", split, folders, {{0.1307f}, {0.3081f}}, "give the folder that holds the four files");
}

Dataset FashionMnist(const std::string& split, const std::string& root) {
  auto folders = std::vector{root};
  if (root.empty()) {
    folders = data_folders("fashion-mnist");
    folders.push_back("/usr/share/datasets/fashion-mnist");
  }
  return open_idx("fashion_mnist", split, folders, {{0.2860f}, {0.3530f}},
                  "install Debian's package dataset-fashion-mnist, or give the folder that holds the four files");
}

}  // namespace trireme
