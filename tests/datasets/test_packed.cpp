#include <numeric>

#include "datasets/formats/open_dataset.h"
#include "datasets/formats/packed.h"
#include "framework/io/safetensors.h"
#include "tests/datasets/idx_files.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"
#include "tests/support/temporary.h"

namespace test_packed {

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
  CHECK(back->scale().std == train->scale().std);
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

TEST_CASE("packed: any reader of safetensors opens the file") {
  const Oracle oracle;
  const Dataset train = Synthetic(made), test = head(test_split(), 7);
  pack(train, test, (oracle.folder() / "all.pack").string());
  if (!oracle.run("packed_oracle.py", "", Python::oracles)) return;
  const Tensor pixels = oracle.tensor("pixels"), labels = oracle.tensor("labels");
  REQUIRE((pixels.shape() == Shape{27, 10, 12, 3} && labels.shape() == Shape{27}));
  Bytes room(360);
  for (Index id = 0; id < 27; ++id) {
    const std::int64_t label = id < 20 ? train->read(id, room) : test->read(id - 20, room);
    CHECK(labels.data<double>()[id] == static_cast<double>(label));
    CHECK(std::equal(room.begin(), room.end(), pixels.data<double>() + 360 * id));
  }
  const std::string metadata = slurp((oracle.folder() / "metadata").string());
  CHECK_THAT(metadata, contains("classes [\"0\",\"1\",\"2\",\"3\"]\n") && contains("train 20\n"));
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
  const std::string text = read_text(path, 1 << 20), bad = folder.path("bad.pack");
  const auto open = [&](const std::string& bytes) {
    folder.write("bad.pack", Bytes(bytes.begin(), bytes.end()));
    return Packed(bad, "train");
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    REQUIRE((at != text.npos && from.size() == to.size()));
    return open(std::string(text).replace(at, from.size(), to));
  };
  CHECK_THROWS_WITH(open("TRIREMEP" + text), contains("is of an older format") && contains("pack it anew"));
  CHECK_THROWS_WITH(open(text.substr(0, text.size() - 1)), contains("bad.pack: ") && contains("the file holds"));
  CHECK_THROWS_WITH(open(text + "x"), contains("the file holds"));
  CHECK_THROWS_WITH(open(std::string(30, 1)), contains("header too large"));
  CHECK_THROWS_WITH(open(""), contains("header too small"));
  CHECK_THROWS_WITH(with("trireme packed 1", "trireme packed 2"),
                    contains("is not a packed file (trireme pack writes"));
  CHECK_THROWS_WITH(with("\"pixels\"", "\"pixel_\""), contains("damaged: it has no pixels of type U8 and 4 axes"));
  CHECK_THROWS_WITH(with("\"labels\"", "\"label_\""), contains("damaged: it has no labels of type I64 and 1 axes"));
  CHECK_THROWS_WITH(with("\"train\":\"20\"", "\"train\":\"19\""), contains("checksum is wrong"));
  CHECK_THROWS_WITH(with("10,12,3]", "10,18,2]"), contains("20 images of 10 x 18 x 2"));
  CHECK_THROWS_WITH(with("\"mean\"", "\"mean_"), contains("not JSON"));
  CHECK_THROWS_WITH(with("\"mean\"", "\"men_\""), contains("its metadata are not as trireme pack writes them"));
  CHECK_THROWS_WITH(with("\"0\\\"", "\"9\\\""), contains("checksum is wrong"));
  std::string label = text;
  ++label[safetensors_header_size(std::as_bytes(std::span(text)), text.size()) + 8];
  CHECK_THROWS_WITH(open(label), contains("checksum is wrong"));
  write_safetensors(bad, {{"pixels", Tensor::zeros({2, 3, 3, 1}, DType::u8)}});
  CHECK_THROWS_WITH(Packed(bad, "train"), contains("is not a packed file"));
  CHECK_THROWS_WITH(pack(Synthetic(made), Synthetic({.shape = {10, 12, 3}}), path),
                    contains("in 4 classes") && contains("in 10"));
}

}  // namespace test_packed
