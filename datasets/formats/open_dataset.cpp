// The datasets by name, and datasets made from others.
#include "datasets/formats/cifar.h"
#include "datasets/formats/datasets.h"
#include "datasets/formats/image_folder.h"
#include "datasets/formats/packed.h"
#include "datasets/formats/webdataset.h"

namespace trireme {
namespace {

class Head final : public DatasetSource {
 public:
  Head(Dataset all, Index n) : all_(std::move(all)), size_(n) {}
  std::string name() const override { return all_->name(); }
  Index size() const override { return size_; }
  Shape shape() const override { return all_->shape(); }
  Index classes() const override { return all_->classes(); }
  PixelScale scale() const override { return all_->scale(); }
  std::vector<std::string> class_names() const override { return all_->class_names(); }
  std::int64_t read(Index id, std::span<std::uint8_t> pixels, const AugmentKey& draw) const override {
    check(id >= 0 && id < size_, "head", "sample {} is outside [0, {})", id, size_);
    return all_->read(id, pixels, draw);
  }
  BadSamples bad() const override { return all_->bad(); }

 private:
  Dataset all_;
  Index size_;
};

ImagesOptions images_options(const std::string& split, const OpenOptions& o) {
  return {.size = o.image_size > 0 ? o.image_size : 224,
          .augment = o.augment && split == "train",
          .central = o.central,
          .on_bad = o.on_bad};
}

std::shared_ptr<const EncodedSource> open_shards(const std::string& split, const OpenOptions& o) {
  const bool training = split == "train";
  check(!o.shards.empty(), "tar", "--data.shards must name the training shards, as in 'shard-{{000000..000099}}.tar'");
  check(training || !o.val_shards.empty(), "tar", "--data.val_shards must name the shards to test on");
  if (training) return WebDataset(expand_shards(o.shards, o.root), o.classes);
  // Both splits have the classes of training.
  const Index classes = o.classes > 0 ? o.classes : std::ssize(open_shards("train", o)->classes());
  return WebDataset(expand_shards(o.val_shards, o.root), classes);
}

struct Row {
  std::string_view name;
  Dataset (*open)(const std::string& split, const OpenOptions&);
};
constexpr Row table[] = {
    {"mnist", [](auto& split, auto& o) { return Mnist(split, o.root); }},
    {"fashion_mnist", [](auto& split, auto& o) { return FashionMnist(split, o.root); }},
    {"cifar10", [](auto& split, auto& o) { return Cifar10(split, o.root); }},
    {"cifar100", [](auto& split, auto& o) { return Cifar100(split, o.root); }},
    {"imagenet", [](auto& split, auto& o) { return Images(image_folder(o.root, split), images_options(split, o)); }},
    {"tar", [](auto& split, auto& o) { return Images(open_shards(split, o), images_options(split, o)); }},
    {"packed",
     [](auto& split, auto& o) {
       return Packed(o.root, split, {.size = o.image_size, .augment = o.augment && split == "train"});
     }},
    {"synthetic",
     [](auto& split, auto& o) {
       // Other samples of the same classes.
       SyntheticOptions mine = o.synthetic;
       if (split == "test") mine.first += Index{1} << 40;
       return Synthetic(mine);
     }},
};

}  // namespace

Dataset head(Dataset all, Index n) {
  check(bool(all), "head", "there is no dataset");
  check(
      n >= 0 && n <= all->size(), "head", "{} samples asked for, {} has {}", n, [&] { return all->name(); },
      all->size());
  return std::make_shared<Head>(std::move(all), n);
}

Dataset open_dataset(const std::string& name, const std::string& split, const OpenOptions& options) {
  std::string names;
  for (const Row& row : table) {
    if (row.name == name) return row.open(split, options);
    names += fmt::format("{}{}", names.empty() ? "" : ", ", row.name);
  }
  fail("dataset", "there is no '{}'; there are {}", name, names);
}

}  // namespace trireme
