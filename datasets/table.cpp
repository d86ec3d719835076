// The datasets by name, and datasets made from others.
#include "datasets/datasets.h"

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
  std::int64_t read(Index id, std::span<std::uint8_t> pixels, const Draw& draw) const override {
    check(id >= 0 && id < size_, "head", "sample {} is outside [0, {})", id, size_);
    return all_->read(id, pixels, draw);
  }

 private:
  Dataset all_;
  Index size_;
};

struct Row {
  std::string_view name;
  Dataset (*open)(const std::string& split, const std::string& root, const SyntheticOptions&);
};
constexpr Row table[] = {
    {"mnist", [](auto& split, auto& root, auto&) { return Mnist(split, root); }},
    {"fashion_mnist", [](auto& split, auto& root, auto&) { return FashionMnist(split, root); }},
    {"synthetic",
     [](auto& split, auto&, auto& options) {
       // Other samples of the same classes.
       SyntheticOptions mine = options;
       if (split == "test") mine.first += Index{1} << 40;
       return Synthetic(mine);
     }},
};

}  // namespace

Dataset head(Dataset all, Index n) {
  check(bool(all), "head", "there is no dataset");
  check(n >= 0 && n <= all->size(), "head", "{} samples asked for, {} has {}", n, all->name(), all->size());
  return std::make_shared<Head>(std::move(all), n);
}

Dataset open_dataset(const std::string& name, const std::string& split, const std::string& root,
                     const SyntheticOptions& options) {
  std::string names;
  for (const Row& row : table) {
    if (row.name == name) return row.open(split, root, options);
    names += fmt::format("{}{}", names.empty() ? "" : ", ", row.name);
  }
  fail("dataset", "there is no '{}'; there are {}", name, names);
}

}  // namespace trireme
