// Checkpoints that several ranks write, each its part, and ranks of any other layout read: here with cuts at random,
// and ranks that are threads with no more between them than texts.
#include <cstring>

#include "framework/io/file.h"
#include "framework/io/json.h"
#include "tests/framework/checkpoint_ranks.h"
#include "tests/framework/save_faults.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"
#include "tests/support/temporary.h"

namespace test_checkpoint_shards {

using namespace trireme;
using namespace trireme::test;

TEST_CASE("boxes of a range: each element once, in order") {
  Random random(5);
  for (int i = 0; i < 500; ++i) {
    Shape shape;
    for (Index axes = between(random, 0, 4); axes > 0; --axes) shape.push_back(between(random, 1, 4));
    const Index begin = between(random, 0, shape.numel()), end = between(random, begin, shape.numel());
    Index next = begin;
    const auto boxes = boxes_of(shape, begin, end);
    for (const Box& b : boxes) {
      Index at = 0, wide = 0;  // of the box's first element and its last, in the tensor
      for (int a = 0; a < shape.rank(); ++a) {
        at = at * shape[a] + b.at[a];
        wide = wide * shape[a] + b.at[a] + b.size[a] - 1;
      }
      CHECK((at == next && wide == next + b.size.numel() - 1));
      next += b.size.numel();
    }
    CHECK(next == end);
    CHECK(boxes.size() <= static_cast<std::size_t>(2 * shape.rank() + 1));
  }
}

TEST_CASE("what ranks have saved comes back on any others, bit for bit, and each reads its own") {
  Random random(1);
  for (int i = 0; i < 60; ++i) {
    const Temporary folder;
    const Sizes sizes{between(random, 1, 4), between(random, 1, 5), between(random, 1, 3), between(random, 1, 6)};
    const int writers = static_cast<int>(between(random, 0, 5)), readers = static_cast<int>(between(random, 0, 5));
    INFO(fmt::format("case {}: {} writers, {} readers", i, writers, readers));  // 0: one that has all
    SavedState whole(sizes);
    whole.fill(3);
    if (writers == 0) {
      whole.save(folder.path(), 3);
    } else {
      Group group(writers, random(), sizes, 3);
      CHECK(none(group.save(folder.path(), 3)));
      CHECK(group.texts.bytes < 2000u * static_cast<unsigned>(writers));
    }
    const std::string path = folder / "checkpoints/step_00000003";
    if (readers == 0) {
      SavedState all(sizes);
      CHECK(load_latest(folder.path(), all.parameters, &all.optimizer)->state.batch == 7);
      CheckpointShard everything{.holds = {{0, all.parameters.size()}}, .holds_buffers = {true, true}};
      CHECK(difference(all, everything, whole) == "");
    } else {
      Group group(readers, random(), sizes);
      CHECK(none(group.load(path)));
      for (int r = 0; r < readers; ++r) CHECK(difference(group.state(r), group.shard(r), whole) == "");
    }
    SavedState alone(sizes);  // as trireme predict does
    CHECK(load_checkpoint(path, alone.parameters, nullptr).path == path);
    const auto name =
        std::filesystem::exists(path + "/model.safetensors") ? "model.safetensors" : "model.safetensors.index.json";
    SavedState imported(sizes);
    import_weights(imported.parameters, read_safetensors(path + "/" + name), name);
    for (const SavedState* s : {&alone, &imported})
      for (std::size_t e = 0; e < s->parameters.entries().size(); ++e)
        CHECK(s->parameters.entries()[e].tensor.to_vector() == whole.parameters.entries()[e].tensor.to_vector());
    CHECK(read_safetensors(path + "/" + name).at("1.num_batches_tracked").item() == 3);
  }
}

TEST_CASE("the reference implementation reads shards") {
  const Oracle oracle;
  SavedState whole;
  whole.fill(3);
  whole.save((oracle.folder() / "whole").string(), 3);
  for (int i = 0; i < 4; ++i) {
    Group group(3, static_cast<std::uint64_t>(i), {}, 3);
    CHECK(none(group.save((oracle.folder() / ("run" + std::to_string(i))).string(), 3)));
  }
  oracle.run("shards_oracle.py", "", test::Python::oracles);  // asserts by itself
}

TEST_CASE("a crash of all ranks at every system call of a save leaves the checkpoint before or the new one") {
  int calls = 0;
  for (int at = 1;; ++at) {
    const Temporary folder;
    Group before(2, 1, {}, 1);
    REQUIRE(none(before.save(folder.path(), 1)));
    const bool died = dies_at(at, [&] {
      Group group(2, 2, {}, 2);
      group.save(folder.path(), 2, 1);
    });
    const auto found = find_latest(folder.path());
    REQUIRE(found.has_value());
    CHECK(found->note.empty());
    SavedState whole;
    whole.fill(static_cast<int>(found->state.step));
    Group after(3, 3);
    CHECK(none(after.load(found->path)));
    for (int r = 0; r < 3; ++r) CHECK(difference(after.state(r), after.shard(r), whole) == "");
    after.fill(4);
    CHECK(none(after.save(folder.path(), 4, 1)));
    CHECK(files_in(folder / "checkpoints") == std::vector<std::string>{"latest", "step_00000004"});
    if (!died) break;
    calls = at;
  }
  CHECK(calls > 30);
}

TEST_CASE(
    "an error of one rank is told on all, with the checkpoint before intact; interrupted and short writes go on") {
  int refused = 0;
  for (int at = 1;; ++at) {
    const Temporary folder;
    Group group(2, 2, {}, 1);
    REQUIRE(none(group.save(folder.path(), 1)));
    group.fill(2);
    std::vector<std::string> errors;
    with_fault(Fault::error, at, ENOSPC, [&] { errors = group.save(folder.path(), 2, 1); });
    const bool failed = !none(errors);
    refused += failed;
    for (const std::string& e : errors) {
      if (!failed) continue;
      CHECK_THAT(e, contains(folder.path()) && contains("No space left on device"));
      CHECK(e.find('\n') == std::string::npos);
    }
    const auto step = find_latest(folder.path())->state.step;
    CHECK((failed ? step == 1 || step == 2 : step == 2));
    for (auto& name : files_in(folder / "checkpoints")) CHECK((!failed || !name.ends_with(".tmp")));
    if (shim.calls < at) break;
  }
  CHECK(refused > 20);
  const Temporary plain, cut_short;
  Group group(2, 2, {}, 1);
  CHECK(none(group.save(plain.path(), 1)));
  for (Fault fault : {Fault::interrupt, Fault::short_write}) {
    std::filesystem::remove_all(cut_short / "checkpoints");
    with_fault(fault, 0, 0, [&] { CHECK(none(group.save(cut_short.path(), 1))); });
    for (auto& name : files_in(plain / "checkpoints/step_00000001"))
      CHECK(test::slurp(cut_short / "checkpoints/step_00000001/" + name) ==
            test::slurp(plain / "checkpoints/step_00000001/" + name));
  }
}

TEST_CASE(
    "a shard that is damaged, missing, cut short or of another checkpoint: one line, and the one before is taken") {
  const Temporary folder;
  Group group(3, 7, {}, 1);
  REQUIRE(none(group.save(folder.path(), 1)));
  group.fill(2);
  REQUIRE(none(group.save(folder.path(), 2)));
  const std::string old = folder / "checkpoints/step_00000001/", path = folder / "checkpoints/step_00000002/";
  int shards = 0;
  for (const std::string& name : files_in(path)) {
    const std::string whole = test::slurp(path + name), other = test::slurp(old + name);
    std::string flipped = whole;
    flipped[flipped.size() / 2] ^= 4;
    shards += name.find("-of-") != name.npos;
    for (const std::string& bytes : {flipped, whole.substr(0, whole.size() / 2), other, std::string()}) {
      if (name == "manifest.json" && bytes == other) continue;
      if (bytes == whole) continue;  // an index without anything of the step
      std::filesystem::remove(path + name);
      if (!bytes.empty()) test::spill(path + name, bytes);
      const auto errors = group.load(path);
      for (const std::string& e : errors) {
        CHECK_THAT(e, contains(name));
        CHECK(e.find('\n') == std::string::npos);
      }
      const auto found = find_latest(folder.path());
      CHECK((found->state.step == 1 && contains(name).match(found->note)));
    }
    test::spill(path + name, whole);
  }
  CHECK(shards > 3);
  CHECK(none(group.load(path)));
}

TEST_CASE("shards by their index: what is missing, foreign or outside of the folder is refused") {
  const Temporary folder;
  Group group(2, 9, {}, 1);
  REQUIRE(none(group.save(folder.path(), 1)));
  const std::string path = folder / "checkpoints/step_00000001/", index = path + "model.safetensors.index.json";
  const Json about = parse_json(test::slurp(index));
  CHECK(about["metadata"]["total_size"].get<std::size_t>() > 4u * 100);
  const auto refusal = [&](Json changed) {
    test::spill(index, json_text(changed));
    try {
      read_safetensors(index);
    } catch (const Error& e) { return test::told(e); }
    return std::string();
  };
  Json plain = about;  // as Hugging Face writes it
  plain["metadata"].erase("files");
  CHECK(refusal(plain) == "");
  Json changed = plain;
  changed["weight_map"]["more"] = "model-00001-of-00002.safetensors";
  CHECK_THAT(refusal(changed), test::mentions("data", "more"));
  for (const char* name : {"../model-00001-of-00002.safetensors", "/etc/passwd", "", ".hidden"}) {
    changed = plain;
    changed["weight_map"]["more"] = name;
    CHECK_THAT(refusal(changed), test::mentions("data", "model.safetensors.index.json"));
  }
  changed = plain;
  changed["weight_map"]["more"] = 7;
  CHECK_THAT(refusal(changed), test::mentions("data", "model.safetensors.index.json"));
  CHECK_THAT(refusal(Json::array()), test::mentions("data", "weight_map"));
  changed = about;
  changed["metadata"]["files"]["model-00001-of-00002.safetensors"]["crc32"] = 1;
  CHECK_THAT(refusal(changed), test::mentions("data", "CRC"));
  changed = plain;  // one of two files: tensors that are cut are not complete
  for (auto& [name, file] : about["weight_map"].items())
    if (file == "model-00002-of-00002.safetensors") changed["weight_map"].erase(name);
  CHECK_THAT(refusal(changed), test::mentions("data", "elements"));
}

TEST_CASE("pieces that overlap, reach outside or disagree are refused") {
  const Temporary folder;
  const auto refusal = [&](const std::vector<std::pair<Shape, Shape>>& boxes, const Shape& shape = {4, 3}) {
    std::vector<std::string> paths;
    for (auto& [at, size] : boxes) {
      SafetensorsShard shard;
      shard.add(NamedTensor{"w", Tensor::zeros(size)}, shape, at);
      const std::string name = std::to_string(paths.size());
      std::filesystem::remove(folder / name);
      write_shard(folder.path(), name, shard);
      paths.push_back(folder / name);
    }
    try {
      open_shards(paths);
    } catch (const Error& e) { return test::told(e); }
    return std::string();
  };
  CHECK(refusal({{{0, 0}, {4, 3}}}) == "");
  CHECK(refusal({{{0, 0}, {2, 3}}, {{2, 0}, {2, 3}}}) == "");
  CHECK_THAT(refusal({{{0, 0}, {2, 3}}}), test::mentions("data", 6, 12, "w"));
  CHECK_THAT(refusal({{{0, 0}, {3, 3}}, {{2, 0}, {2, 3}}}), test::mentions("data", "elements"));
  CHECK_THAT(refusal({{{3, 0}, {2, 3}}}), test::mentions("data", "[4, 3]"));
  CHECK_THAT(refusal({{{-1, 0}, {2, 3}}}), test::mentions("data", "[4, 3]"));
  CHECK_THAT(refusal({{{0}, {2}}}), test::mentions("data", "[4, 3]"));
}

TEST_CASE("state of single ranks comes back to the same layout, strategies in any order, and to no other") {
  const Temporary folder;
  Group group(3, 4, {}, 1);
  const auto shard = [&](int r, const std::string& strategies) {
    CheckpointShard one = group.shard(r);
    one.layout += strategies;
    return one;
  };
  const auto errors = on_threads(3, [&](int r) {
    SaveOptions options{.shard = shard(r, " data_parallel spatial")};
    if (r != 1) options.local["residual"] = Tensor::full({2}, r + 1);
    group.state(r).save(folder.path(), 1, options);
  });
  CHECK(none(errors));
  const std::string path = folder / "checkpoints/step_00000001";
  std::vector<double> residuals(3);
  CHECK(none(on_threads(3, [&](int r) {
    const auto found =
        load_checkpoint(path, group.state(r).parameters, &group.state(r).optimizer, shard(r, " spatial data_parallel"));
    residuals[static_cast<std::size_t>(r)] = found.local.empty() ? 0 : found.local.at("residual").to_vector()[1];
  })));
  CHECK(residuals == std::vector<double>{1, 0, 3});
  Group others(2, 5);
  for (const std::string& e : others.load(path)) CHECK_THAT(e, test::mentions("ranks=3", "ranks=2"));
  SavedState alone;
  CHECK_ERROR(load_checkpoint(path, alone.parameters, &alone.optimizer), usage, "checkpoint");
  CHECK(load_checkpoint(path, alone.parameters, nullptr).state.step == 1);
}

}  // namespace test_checkpoint_shards
