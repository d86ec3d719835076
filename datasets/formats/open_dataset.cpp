#include "datasets/formats/open_dataset.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>

#include "datasets/formats/cifar.h"
#include "datasets/formats/image_folder.h"
#include "datasets/formats/mnist.h"
#include "datasets/formats/packed.h"
#include "datasets/formats/webdataset.h"
#include "datasets/text/tokens.h"

namespace trireme {
namespace {

ImagesOptions images_options(const std::string& split, const OpenOptions& o) {
  return {.size = o.image_size > 0 ? o.image_size : 224,
          .augment = o.augment && split == "train",
          .central = o.central,
          .on_bad = o.on_bad};
}

std::unique_ptr<const EncodedSource> open_shards(const std::string& split, const OpenOptions& o) {
  const bool training = split == "train";
  check(!o.shards.empty(), "tar", "--data.shards must name the training shards, as in 'shard-{{000000..000099}}.tar'");
  check(training || !o.val_shards.empty(), "tar", "--data.val_shards must name the shards to test on");
  if (training) return WebDataset(expand_shards(o.shards, o.root), o.classes);
  // Both splits have the classes of the training shards.
  const Index classes = o.classes > 0 ? o.classes : std::ssize(open_shards("train", o)->classes());
  return WebDataset(expand_shards(o.val_shards, o.root), classes);
}

Dataset open_text(const std::string& split, const OpenOptions& o) {
  check(!o.root.empty(), "text", "root must name a text: any file of text, a token file (.bin), or a folder of either");
  const bool chars = o.tokenizer == "chars", bytes = o.tokenizer == "bytes" || o.tokenizer.empty();
  return Tokens({.path = o.root,
                 .split = split,
                 .validation = o.validation,
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
    {"text", open_text},
    {"synthetic",
     [](auto& split, auto& o) {
       // The test split has other samples of the same classes.
       SyntheticOptions mine = o.synthetic;
       if (split == "test") mine.first += Index{1} << 40;
       return Synthetic(mine);
     }},
    {"phantoms",
     [](auto& split, auto& o) {
       PhantomsOptions mine = o.phantoms;
       if (split == "test") {
         mine.test = true;
         mine.samples = o.test_samples;
       }
       return Phantoms(mine);
     }},
    {"volumes",
     [](auto& split, auto& o) {
       VolumePairsOptions mine = o.volumes;
       mine.root = o.root;
       mine.test = split == "test";
       return VolumePairs(mine);
     }},
};

}  // namespace

Dataset open_dataset(const std::string& name, const std::string& split, const OpenOptions& options) {
  const auto at = std::ranges::find(table, name, &Row::name);
  check(at != std::end(table), "dataset", "there is no '{}'; there are {}", name,
        fmt::join(table | std::views::transform(&Row::name), ", "));
  return at->open(split, options);
}

}  // namespace trireme
