#include "datasets/formats/open_dataset.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <ranges>

#include "datasets/formats/cifar.h"
#include "datasets/formats/image_folder.h"
#include "datasets/formats/mnist.h"
#include "datasets/formats/packed.h"
#include "datasets/formats/webdataset.h"
#include "datasets/text/tokens.h"
#include "kernels/core/random.h"

namespace trireme {
namespace {

ImagesOptions images_options(const std::string& split, const OpenOptions& o) {
  return {.size = o.image_size > 0 ? o.image_size : 224,
          .augment = o.augment && split == "train",
          .central = o.central,
          .on_bad = o.on_bad};
}

std::unique_ptr<const EncodedSource> open_shards(const std::string& split, const OpenOptions& o) {
  check(!o.shards.empty(), "tar", "--data.shards must name the training shards, as in 'shard-{{000000..000099}}.tar'");
  check(split != "test" || !o.val_shards.empty(), "tar", "--data.val_shards must name the shards to test on");
  std::vector<std::string> shards = expand_shards(o.shards, o.root);
  const auto held =
      static_cast<std::ptrdiff_t>(std::floor(static_cast<double>(shards.size()) * (1 - o.validation_split)));
  if (split == "train" && o.validation_split == 0) return WebDataset(shards, o.classes);
  // All splits have the classes of the training shards.
  const Index classes = o.classes > 0 ? o.classes : std::ssize(WebDataset(shards)->classes());
  if (split == "test") return WebDataset(expand_shards(o.val_shards, o.root), classes);
  check(held > 0, "tar", "validation_split {} leaves none of {} training shards", o.validation_split, shards.size());
  if (split == "train")
    shards.erase(shards.begin() + held, shards.end());
  else
    shards.erase(shards.begin(), shards.begin() + held);
  return WebDataset(shards, classes);
}

Dataset open_text(const std::string& split, const OpenOptions& o) {
  check(!o.root.empty(), "text", "root must name a text: any file of text, a token file (.bin), or a folder of either");
  const bool chars = o.tokenizer == "chars", bytes = o.tokenizer == "bytes" || o.tokenizer.empty();
  return Tokens({.path = o.root,
                 .split = split,
                 .test_split = o.test_split,
                 .validation_split = o.validation_split,
                 .tokenizer = chars || bytes ? Tokenizer() : open_tokenizer(o.tokenizer),
                 .characters = chars,
                 .context = o.context > 0 ? o.context : 256,
                 .windows = split == "train" ? Windows::random : Windows::strided,
                 .per_epoch = o.windows,
                 .separator = o.separator});
}

struct Row {
  std::string_view name;
  Dataset (*open)(const std::string& split, const OpenOptions&);
  bool has_validation = false;  ///< whether `open` knows the split "validation"; else samples of "train" are held out
};
constexpr Row table[] = {
    {"mnist", [](auto& split, auto& o) { return Mnist(split, o.root); }},
    {"fashion_mnist", [](auto& split, auto& o) { return FashionMnist(split, o.root); }},
    {"cifar10", [](auto& split, auto& o) { return Cifar10(split, o.root); }},
    {"cifar100", [](auto& split, auto& o) { return Cifar100(split, o.root); }},
    {"imagenet", [](auto& split, auto& o) { return Images(image_folder(o.root, split), images_options(split, o)); }},
    {"tar", [](auto& split, auto& o) { return Images(open_shards(split, o), images_options(split, o)); }, true},
    {"packed",
     [](auto& split, auto& o) {
       return Packed(o.root, split, {.size = o.image_size, .augment = o.augment && split == "train"});
     }},
    {"text", open_text, true},
    {"synthetic",
     [](auto& split, auto& o) {
       // Other splits have other samples of the same classes.
       SyntheticOptions mine = o.synthetic;
       if (split != "train") mine.first += Index{split == "test" ? 1 : 2} << 40;
       return Synthetic(mine);
     },
     true},
    {"phantoms",
     [](auto& split, auto& o) {
       PhantomsOptions mine = o.phantoms;
       mine.test = split == "test";
       mine.validation = split == "validation";
       if (split != "train") mine.samples = o.test_samples;
       return Phantoms(mine);
     },
     true},
    {"volumes",
     [](auto& split, auto& o) {
       VolumePairsOptions mine = o.volumes;
       mine.root = o.root;
       mine.test = split == "test";
       mine.validation = split == "validation";
       mine.validation_split = o.validation_split;
       return VolumePairs(mine);
     },
     true},
};

/// The samples of the training data, in order, or those that are held out: of n the floor(n share) with the smallest
/// hashes of their ids.
Dataset divided(Dataset all, double share, bool validation) {
  const Index n = all->size(), count = static_cast<Index>(std::floor(static_cast<double>(n) * share));
  std::vector<std::pair<std::uint64_t, Index>> order;
  for (Index id = 0; id < n; ++id) order.emplace_back(mix(0x76616c6964, static_cast<std::uint64_t>(id)), id);
  std::ranges::nth_element(order, order.begin() + count);
  std::vector<Index> ids;
  for (Index i = validation ? 0 : count; i < (validation ? count : n); ++i)
    ids.push_back(order[static_cast<std::size_t>(i)].second);
  std::ranges::sort(ids);
  return subset(std::move(all), std::move(ids));
}

}  // namespace

Dataset open_dataset(const std::string& name, const std::string& split, const OpenOptions& options) {
  const auto at = std::ranges::find(table, name, &Row::name);
  check(at != std::end(table), "dataset", "there is no '{}'; there are {}", name,
        fmt::join(table | std::views::transform(&Row::name), ", "));
  check(split == "train" || split == "validation" || split == "test", name,
        "split is '{}', it must be train, validation or test", split);
  const bool validation = split == "validation";
  check(options.validation_split >= 0 && options.validation_split < 1, "dataset",
        "validation_split is {}, expected in [0, 1)", options.validation_split);
  check(!validation || options.validation_split > 0, "dataset",
        "the split validation has no samples; give validation_split a share of the training samples");
  if (at->has_validation || options.validation_split == 0 || split == "test") return at->open(split, options);
  OpenOptions plain = options;
  plain.augment = options.augment && !validation;
  return divided(at->open("train", plain), options.validation_split, validation);
}

}  // namespace trireme
