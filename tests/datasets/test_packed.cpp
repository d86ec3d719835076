#include <numeric>

#include "datasets/formats/datasets.h"
#include "datasets/formats/packed.h"
#include "framework/io/file.h"
#include "tests/datasets/idx_files.h"
#include "tests/support/catch.h"

using namespace trireme;
using namespace trireme::test;

namespace {

Bytes sample(const Dataset& data, Index id, const AugmentKey& draw = {}) {
  Bytes pixels(static_cast<std::size_t>(data->shape().numel()));
  data->read(id, pixels, draw);
  return pixels;
}
const SyntheticOptions made{.size = 20, .shape = {10, 12, 3}, .classes = 4};
Dataset test_split() { return open_dataset("synthetic", "test", {.synthetic = made}); }

}  // namespace

TEST_CASE("packed: what was packed comes back") {
  const Folder folder;
  const std::string path = folder.path("all.pack");
  const Dataset train = Synthetic(made), test = head(test_split(), 7);
  Index last = 0;
  pack(train, test, path, {.workers = 3, .progress = [&](Index done) { last = done; }});
  CHECK(last == 27);
  const Dataset back = Packed(path, "train"), other = Packed(path, "test");
  CHECK((back->size() == 20 && other->size() == 7 && back->classes() == 4 && back->shape() == Shape{10, 12, 3}));
  CHECK(back->class_names() == std::vector<std::string>{"0", "1", "2", "3"});
  CHECK(back->scale().std == std::vector<float>(3, 0.2282f));
  Bytes room(360);
  for (Index id = 0; id < 20; ++id) {
    CHECK(sample(back, id) == sample(train, id));
    CHECK(back->read(id, room) == train->read(id, room));
  }
  CHECK(sample(other, 6) == sample(test, 6));
  CHECK(other->read(6, room) == test->read(6, room));
  CHECK_THROWS_WITH(back->read(20, room), contains("sample 20 is outside [0, 20)"));
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("packed: squares are cut out, in the centre or by (seed, epoch, id)") {
  const Folder folder;
  const std::string path = folder.path("all.pack");
  pack(Synthetic(made), test_split(), path);
  const Dataset whole = Packed(path, "train"), centre = Packed(path, "train", {.size = 6}),
                cut = Packed(path, "train", {.size = 6, .augment = true});
  const auto part = [&](Index id, Index top, Index left, bool flip) {
    const Bytes all = sample(whole, id);
    Bytes pixels;
    for (Index y = 0; y < 6; ++y)
      for (Index x = 0; x < 6; ++x)
        for (Index c = 0; c < 3; ++c)
          pixels.push_back(all[static_cast<std::size_t>(((top + y) * 12 + left + (flip ? 5 - x : x)) * 3 + c)]);
    return pixels;
  };
  CHECK(sample(centre, 3) == part(3, 2, 3, false));
  std::vector<Bytes> places;
  for (Index i = 0; i < 5 * 7 * 2; ++i) places.push_back(part(3, i / 14, i / 2 % 7, i % 2 != 0));
  std::vector<int> seen(places.size());
  for (Index epoch = 0; epoch < 2000; ++epoch) {  // 29 a place; that one stays out is 1 in 10^11
    const AugmentKey draw{.seed = 9, .epoch = epoch};
    const Bytes pixels = sample(cut, 3, draw);
    if (epoch < 20) CHECK(pixels == sample(cut, 3, draw));
    const auto at = std::ranges::find(places, pixels);
    REQUIRE(at != places.end());
    ++seen[static_cast<std::size_t>(at - places.begin())];
  }
  CHECK(std::ranges::min(seen) >= 8);
  CHECK(std::ranges::max(seen) <= 60);
  CHECK_THROWS_WITH(Packed(path, "train", {.size = 11}), contains("11 x 11 cannot be cut out"));
}

TEST_CASE("packed: bad files") {
  const Folder folder;
  const std::string path = folder.path("all.pack");
  pack(Synthetic(made), head(test_split(), 0), path);
  CHECK_THROWS_WITH(Packed(path, "test"), contains("holds no samples for test"));
  CHECK_THROWS_WITH(Packed(folder.path("none"), "train"), contains("cannot open"));
  CHECK_THROWS_WITH(Packed(folder.path(), "train"), contains("not a regular file"));
  CHECK_THROWS_WITH(Packed("", "train"), contains("--data.root FILE"));
  std::string text = read_text(path, 1 << 20);
  const auto with = [&](std::size_t at, char value) {
    Bytes bytes(text.begin(), text.end());
    bytes[at] = static_cast<std::uint8_t>(value);
    folder.write("bad.pack", bytes);
    return Packed(folder.path("bad.pack"), "train");
  };
  CHECK_THROWS_WITH(with(0, 'X'), contains("is not a packed file (trireme pack writes them)"));
  CHECK_THROWS_WITH(with(8, 2), contains("is of version 2, this program reads version 1"));
  CHECK_THROWS_WITH(with(16, 21), contains("damaged or truncated: has "));
  CHECK_THROWS_WITH(with(24, 21), contains("damaged or truncated"));
  CHECK_THROWS_WITH(with(40, 2), contains("its images are 10 x 12 x 2"));
  CHECK_THROWS_WITH(with(72, 'x'), contains("checksum is wrong"));
  CHECK_THROWS_WITH(with(text.size() - 9, 1), contains("checksum is wrong"));
  folder.write("bad.pack", Bytes(text.begin(), text.end() - 1));
  CHECK_THROWS_WITH(Packed(folder.path("bad.pack"), "train"), contains("damaged or truncated"));
  folder.write("bad.pack", Bytes(30, 1));
  CHECK_THROWS_WITH(Packed(folder.path("bad.pack"), "train"), contains("has 30 bytes"));
  folder.write("bad.pack", {});
  CHECK_THROWS_WITH(Packed(folder.path("bad.pack"), "train"), contains("is empty"));
  CHECK_THROWS_WITH(pack(Synthetic(made), Synthetic({.shape = {10, 12, 3}}), path),
                    contains("in 4 classes") && contains("in 10"));
}
