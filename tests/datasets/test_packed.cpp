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
  CHECK_ERROR(back->read(20, room), usage, 20, 0);
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
  CHECK_ERROR(Packed(path, "train", {.size = 11}), usage, "packed", 11);
}

TEST_CASE("packed: bad files") {
  const Folder folder;
  const std::string path = folder.path("all.pack");
  pack(Synthetic(made), head(test_split(), 0), path);
  CHECK_ERROR(Packed(path, "test"), data, "packed", "test");
  CHECK_ERROR(Packed(folder.path("none"), "train"), file, "file", "none");
  CHECK_ERROR(Packed(folder.path(), "train"), file, folder.path());
  CHECK_ERROR(Packed("", "train"), usage, "packed", "data.root");
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
  CHECK_ERROR(open("TRIREMEP" + text), data, "packed", "bad.pack");
  CHECK_ERROR(open(text.substr(0, text.size() - 1)), data, "safetensors", "bad.pack");
  CHECK_ERROR(open(text + "x"), data, 7360, 7361);
  CHECK_ERROR(open(std::string(30, 1)), data, "72340172838076673", 100000000);
  CHECK_ERROR(open(""), data, "safetensors", 0);
  CHECK_ERROR(with("trireme packed 1", "trireme packed 2"), data, "packed", "bad.pack");
  CHECK_ERROR(with("\"pixels\"", "\"pixel_\""), data, "pixels", "U8", 4);
  CHECK_ERROR(with("\"labels\"", "\"label_\""), data, "labels", "I64", 1);
  CHECK_ERROR(with("\"train\":\"20\"", "\"train\":\"19\""), data, "packed", "bad.pack");
  CHECK_ERROR(with("10,12,3]", "10,18,2]"), data, 20, 10, 18, 2);
  CHECK_ERROR(with("\"mean\"", "\"mean_"), data, "safetensors", 111);
  CHECK_ERROR(with("\"mean\"", "\"men_\""), data, "packed", "bad.pack");
  CHECK_ERROR(with("\"0\\\"", "\"9\\\""), data, "packed", "bad.pack");
  std::string label = text;
  ++label[safetensors_header_size(std::as_bytes(std::span(text)), text.size()) + 8];
  CHECK_ERROR(open(label), data, "packed", "bad.pack");
  write_safetensors(bad, {{"pixels", Tensor::zeros({2, 3, 3, 1}, DType::u8)}});
  CHECK_ERROR(Packed(bad, "train"), data, "packed", "bad.pack");
  CHECK_ERROR(pack(Synthetic(made), Synthetic({.shape = {10, 12, 3}}), path), usage, 4, 10);
}

}  // namespace test_packed
