#include <cmath>
#include <numeric>
#include <set>

#include "datasets/core/tensors.h"
#include "datasets/formats/mnist.h"
#include "datasets/formats/open_dataset.h"
#include "datasets/images/augment.h"
#include "tests/datasets/idx_files.h"
#include "tests/support/catch.h"

namespace test_datasets {

using namespace trireme;
using namespace trireme::test;

namespace {

/// A folder with a tiny MNIST: two images of 2 x 2.
void write_mnist(const Folder& folder, const Bytes& images, const Bytes& labels) {
  folder.write("train-images-idx3-ubyte", images);
  folder.write("train-labels-idx1-ubyte.gz", gzip(labels));
}
const Bytes pixels{0, 1, 2, 3, 4, 5, 6, 7};

std::vector<std::uint8_t> sample(const Dataset& data, Index id) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(data->shape().numel()));
  data->read(id, bytes);
  return bytes;
}

}  // namespace

TEST_CASE("mnist: the real one") {
  const Dataset train = Mnist("train"), test = Mnist("test");
  CHECK(train->size() == 60000);
  CHECK(test->size() == 10000);
  CHECK(train->shape() == Shape{28, 28, 1});
  CHECK(train->classes() == 10);
  std::vector<std::uint8_t> bytes(28 * 28);
  std::vector<std::int64_t> first, counts(10);
  std::uint64_t sum = 0, squares = 0;
  for (Index id = 0; id < train->size(); ++id) {
    const std::int64_t label = train->read(id, bytes);
    if (id < 10) first.push_back(label);
    ++counts[static_cast<std::size_t>(label)];
    for (std::uint64_t value : bytes) {
      sum += value;
      squares += value * value;
    }
  }
  CHECK(first == std::vector<std::int64_t>{5, 0, 4, 1, 9, 2, 1, 3, 1, 4});
  CHECK(counts == std::vector<std::int64_t>{5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949});
  const double n = 60000.0 * 28 * 28, mean = static_cast<double>(sum) / n / 255;
  CHECK(mean == Approx(0.1307).margin(5e-5));
  CHECK(std::sqrt(static_cast<double>(squares) / n / 255 / 255 - mean * mean) == Approx(0.3081).margin(5e-5));
}

TEST_CASE("fashion_mnist: the real one, or the package to install") {
  try {
    const Dataset test = FashionMnist("test");
    CHECK(test->size() == 10000);
    CHECK(test->shape() == Shape{28, 28, 1});
    std::vector<std::uint8_t> bytes(28 * 28);
    CHECK(test->read(0, bytes) == 9);  // an ankle boot
  } catch (const Error& error) { CHECK_THAT(error.what(), contains("dataset-fashion-mnist")); }
  const Folder empty;
  CHECK_ERROR(FashionMnist("test", empty.path()), file, empty.path());
}

TEST_CASE("mnist: a folder of one's own, through the argument and through TRIREME_DATA") {
  const Folder folder;
  std::filesystem::create_directory(folder.path("mnist"));
  folder.write("mnist/t10k-images-idx3-ubyte", idx_bytes({2, 2, 2}, pixels));
  folder.write("mnist/t10k-labels-idx1-ubyte.gz", gzip(idx_bytes({2}, {9, 0})));
  setenv("TRIREME_DATA", folder.path().c_str(), 1);
  const Dataset found = Mnist("test");
  unsetenv("TRIREME_DATA");
  for (const Dataset& data : {found, Mnist("test", folder.path("mnist"))}) {
    CHECK(data->size() == 2);
    CHECK(data->shape() == Shape{2, 2, 1});
    CHECK(sample(data, 1) == Bytes{4, 5, 6, 7});
  }
}

TEST_CASE("mnist: bad files") {
  const Folder folder;
  const auto open = [&] { return Mnist("train", folder.path()); };
  const Bytes images = idx_bytes({2, 2, 2}, pixels), labels = idx_bytes({2}, {3, 4});
  CHECK_ERROR(open(), file, folder.path(), "train-images-idx3-ubyte");
  CHECK_ERROR(Mnist("training"), usage, "mnist", "training");
  write_mnist(folder, images, idx_bytes({3}, {3, 4, 5}));
  CHECK_ERROR(open(), data, 2, 3);
  write_mnist(folder, images, idx_bytes({2}, {3, 10}));
  CHECK_ERROR(open(), data, 10, 1, 0);
  write_mnist(folder, labels, labels);
  CHECK_ERROR(open(), data, "0x00000801", "0x00000803");
  write_mnist(folder, images, images);
  CHECK_ERROR(open(), data, "0x00000803", "0x00000801");
  write_mnist(folder, idx_bytes({2, 0, 2}, {}), labels);
  CHECK_ERROR(open(), data, 0, 2);
  write_mnist(folder, images, labels);
  Bytes room(4);
  CHECK(open()->read(1, room) == 4);
  CHECK_ERROR(open()->read(2, room), usage, 2, 0);
  CHECK_ERROR(open()->read(-1, room), usage, -1, 2, 0);
}

TEST_CASE("synthetic with a label for each pixel: a function of seed and id, and pixels tell their label") {
  SyntheticOptions options{.size = 20, .shape = {5, 6, 7, 2}, .classes = 3, .seed = 11, .dense = true};
  const Dataset data = Synthetic(options);
  options.first = 10;
  const Sample last = sample_of(data, 19), again = sample_of(Synthetic(options), 9), other = sample_of(data, 18);
  CHECK(data->classes() == 3);
  CHECK(last.x.shape() == Shape{5, 6, 7, 2});
  CHECK(last.y.shape() == Shape{5, 6, 7});
  CHECK(last.x.to_vector() == again.x.to_vector());
  CHECK(last.y.to_vector() == again.y.to_vector());
  CHECK(last.y.to_vector() != other.y.to_vector());
  const std::vector<double> x = last.x.to_vector(), y = last.y.to_vector();
  for (std::size_t i = 0; i < x.size(); ++i) REQUIRE(std::floor(x[i] * 3) == y[i / 2]);
}

TEST_CASE("synthetic: a function of seed and id, with classes that can be told apart") {
  const SyntheticOptions options{.size = 400, .shape = {9, 7, 3}, .classes = 4, .seed = 11};
  const Dataset data = Synthetic(options), again = Synthetic(options);
  SyntheticOptions other_seed = options, later = options;
  other_seed.seed = 12;
  later.first = 100;
  CHECK(sample(data, 399) == sample(again, 399));
  CHECK(sample(data, 0) != sample(Synthetic(other_seed), 0));
  CHECK(sample(data, 103) == sample(Synthetic(later), 3));
  CHECK(sample(open_dataset("synthetic", "test", {.synthetic = options}), 0) != sample(data, 0));

  // The nearest class mean of 200 samples names the label of the other 200.
  Bytes bytes(9 * 7 * 3);
  std::vector<std::vector<double>> mean(4, std::vector<double>(bytes.size()));
  std::vector<double> count(4);
  const auto distance = [&](const std::vector<double>& to) {
    double sum = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) sum += (bytes[i] - to[i]) * (bytes[i] - to[i]);
    return sum;
  };
  int right = 0;
  for (Index id = 0; id < 400; ++id) {
    const auto label = static_cast<std::size_t>(data->read(id, bytes));
    REQUIRE(label < 4);
    if (id == 200)
      for (std::size_t c = 0; c < 4; ++c)
        for (double& value : mean[c]) value /= count[c];
    if (id < 200) {
      ++count[label];
      for (std::size_t i = 0; i < bytes.size(); ++i) mean[label][i] += bytes[i];
      continue;
    }
    std::size_t best = 0;
    for (std::size_t c = 1; c < 4; ++c)
      if (distance(mean[c]) < distance(mean[best])) best = c;
    right += best == label;
  }
  CHECK(right >= 190);
}

TEST_CASE("augmentation cuts and mirrors, by seed, epoch and sample only") {
  const Dataset plain = Synthetic({.size = 40, .shape = {6, 5, 2}}), data = augmented(plain, {.pad = 2});
  const auto pixels = [](const Dataset& from, Index id, const AugmentKey& draw) {
    Bytes bytes(static_cast<std::size_t>(from->shape().numel()));
    bytes.push_back(static_cast<std::uint8_t>(from->read(id, std::span(bytes), draw)));
    return bytes;  // and the label
  };
  int mirrored = 0, other_epoch = 0, other_seed = 0;
  std::set<std::pair<Index, Index>> moves;
  for (Index id = 0; id < data->size(); ++id) {
    const Bytes from = pixels(plain, id, {}), got = pixels(data, id, {.seed = 3, .epoch = 1});
    CHECK(got == pixels(data, id, {.seed = 3, .epoch = 1}));
    other_epoch += got != pixels(data, id, {.seed = 3, .epoch = 2});
    other_seed += got != pixels(data, id, {.seed = 4, .epoch = 1});
    int matches = 0;
    for (Index down = -2; down <= 2; ++down)
      for (Index right = -2; right <= 2; ++right)
        for (bool mirror : {false, true}) {
          Bytes expected(60, 0);
          expected.push_back(from.back());
          for (Index y = 0; y < 6; ++y)
            for (Index x = 0; x < 5; ++x)
              for (Index c = 0; c < 2; ++c) {
                const Index fy = y + down, fx = (mirror ? 4 - x : x) + right;
                if (fy >= 0 && fy < 6 && fx >= 0 && fx < 5) expected[(y * 5 + x) * 2 + c] = from[(fy * 5 + fx) * 2 + c];
              }
          if (expected != got) continue;
          ++matches;
          mirrored += mirror;
          moves.emplace(down, right);
        }
    CHECK(matches == 1);
  }
  CHECK((mirrored > 8 && mirrored < 32));
  CHECK(moves.size() > 12);
  CHECK((other_epoch > 30 && other_seed > 30));
  CHECK(pixels(augmented(plain, {.pad = 0, .flip = false}), 7, {}) == pixels(plain, 7, {}));
  CHECK_ERROR(augmented(Synthetic({.shape = {9}})), usage, "[9]", "[height, width, channels]");
  CHECK_ERROR(augmented(plain, {.pad = -1}), usage, "augment", -1);
}

TEST_CASE("a validation split takes samples from the training split, each once, and none from the test split") {
  for (const char* name : {"mnist", "fashion_mnist"}) {
    const Dataset all = open_dataset(name, "train");
    for (const double share : {0.1, 0.37}) {
      const OpenOptions o{.validation_split = share};
      const Dataset train = open_dataset(name, "train", o), held = open_dataset(name, "validation", o);
      CHECK(held->size() == static_cast<Index>(std::floor(60000 * share)));
      CHECK(train->size() + held->size() == all->size());
      CHECK(train->fingerprint() != all->fingerprint());
      CHECK(train->fingerprint() != held->fingerprint());
      CHECK(held->fingerprint() == open_dataset(name, "validation", o)->fingerprint());
      CHECK(open_dataset(name, "test", o)->fingerprint() == open_dataset(name, "test")->fingerprint());
      Index in_train = 0, in_held = 0;  // both keep the order of all
      std::vector<Index> labels(10);
      for (Index id = 0; id < all->size(); ++id) {
        const auto s = sample(all, id);
        if (in_held < held->size() && sample(held, in_held) == s) {
          std::vector<std::uint8_t> bytes(s);
          ++labels[static_cast<std::size_t>(held->read(in_held, bytes))];
          ++in_held;
        } else if (in_train < train->size() && sample(train, in_train) == s) {
          ++in_train;
        }
      }
      CHECK(in_train == train->size());
      CHECK(in_held == held->size());
      for (const Index count : labels)  // 6,000 of a class on average: five standard deviations
        CHECK(std::abs(static_cast<double>(count) - 6000 * share) < 1000 * share + 5 * std::sqrt(6000 * share));
    }
  }
  const OpenOptions made{
      .validation_split = 0.5, .synthetic = {.size = 6}, .phantoms = {.samples = 6}, .test_samples = 4};
  std::set<std::vector<std::uint8_t>> pictures;
  std::set<std::vector<double>> crops;
  for (const char* split : {"train", "validation", "test"}) {
    const Dataset synthetic = open_dataset("synthetic", split, made), phantoms = open_dataset("phantoms", split, made);
    for (Index id = 0; id < synthetic->size(); ++id) pictures.insert(sample(synthetic, id));
    CHECK(phantoms->size() == (split == std::string("train") ? 6 : 4));
    for (Index id = 0; id < 4; ++id) crops.insert(sample_of(phantoms, id, {.seed = 1}).x.to_vector());
  }
  CHECK(pictures.size() == 18);
  CHECK(crops.size() == 12);
  CHECK_ERROR(open_dataset("mnist", "validation"), usage, "validation_split");
  for (const OpenOptions& o : {OpenOptions{}, OpenOptions{.validation_split = 0.1}})
    for (const char* name : {"mnist", "synthetic"}) CHECK_ERROR(open_dataset(name, "tset", o), usage, name, "tset");
  CHECK_ERROR(open_dataset("mnist", "train", {.validation_split = 1}), usage, "validation_split", 1);
  CHECK_ERROR(subset(Synthetic({.size = 3}), {0, 3}), usage, "subset", 3);
}

TEST_CASE("head, and datasets by name") {
  const Dataset all = Synthetic({.size = 10}), first = head(all, 4);
  CHECK(first->size() == 4);
  CHECK(sample(first, 3) == sample(all, 3));
  CHECK_ERROR(sample(first, 4), usage, 4, 0);
  CHECK_ERROR(head(all, 11), usage, "synthetic", 10, 11);
  CHECK(open_dataset("mnist", "test")->size() == 10000);
  CHECK_ERROR(open_dataset("minst", "test"), usage, "minst", "mnist", "fashion_mnist", "cifar10", "cifar100",
              "synthetic");
  CHECK_ERROR(Synthetic({.classes = 0}), usage, "synthetic", 0);
  CHECK_ERROR(Synthetic({.shape = {3, 0}}), usage, "synthetic", "[3, 0]");
}

}  // namespace test_datasets
