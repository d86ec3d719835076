// Checkpoints that several ranks write, each its part, and ranks of any other layout read: here with cuts at random,
// and ranks that are threads with no more between them than texts.
#include <algorithm>
#include <barrier>
#include <cstring>
#include <random>
#include <thread>

#include "framework/io/checkpoint.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "framework/layers/layers.h"
#include "tests/framework/save_faults.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"
#include "tests/support/temporary.h"

using namespace trireme;
using test::contains;
using test::dies_at;
using test::Fault;
using test::shim;
using test::with_fault;

namespace {

using Random = std::mt19937_64;
Index between(Random& random, Index first, Index last) {
  return first + static_cast<Index>(random() % static_cast<std::uint64_t>(last - first + 1));
}

struct Sizes {
  Index in = 3, filters = 4, kernel = 3, out = 5;
};

/// A model with every kind of state, of which no two numbers are the same; before fill(), -1.
struct State {
  Sequential model;
  Parameters parameters;
  Optimizer optimizer;

  explicit State(const Sizes& s = {})
      : model{Conv2d(s.in, s.filters, s.kernel), BatchNorm(s.filters), Linear(s.filters, s.out)},
        parameters(model),
        optimizer(parameters, Adam{}) {
    visit([](float& v) { v = -1; });
  }
  void visit(const std::function<void(float&)>& f) {
    for (auto& e : parameters.entries())
      for (float& v : e.tensor.view().span<float>()) f(v);
    for (auto& b : parameters.buffers())
      for (float& v : b.tensor.view().span<float>()) f(v);
    for (auto& [name, flat] : optimizer.state())
      for (float& v : flat.blocks()[0].view().span<float>()) f(v);
  }
  void fill(int step) {
    float next = static_cast<float>(step);
    visit([&](float& v) { v = next += 0.25f; });
    optimizer.set_steps(step);
  }
  std::string save(const std::string& run, int step, const SaveOptions& options = {}) {
    return save_checkpoint(run, parameters, optimizer, {.step = step, .batch = 7, .config = "a = 1\n"}, options);
  }
};

/// Texts between ranks that are threads.
class Texts {
 public:
  explicit Texts(int ranks) : texts_(static_cast<std::size_t>(ranks)), barrier_(ranks) {}
  std::vector<std::string> all_gather(int rank, const std::string& mine) {
    texts_[static_cast<std::size_t>(rank)] = mine, bytes += mine.size();
    barrier_.arrive_and_wait();
    auto all = texts_;
    barrier_.arrive_and_wait();
    return all;
  }
  std::atomic<std::size_t> bytes = 0;

 private:
  std::vector<std::string> texts_;
  std::barrier<> barrier_;
};

/// Ranks that hold and write slices of the flat block and buffers by lot; each slice is written by one.
std::vector<CheckpointShard> cut(const State& state, int ranks, Random& random, Texts& texts) {
  std::vector<CheckpointShard> all(static_cast<std::size_t>(ranks));
  const auto deal = [&](auto member) {  // to ranks in any order, in one to three slices each
    std::vector<Index> cuts{0, state.parameters.size()};
    for (int i = 1; i < ranks * 2; ++i) cuts.push_back(between(random, 0, state.parameters.size()));
    std::sort(cuts.begin(), cuts.end());
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
      if (cuts[i] < cuts[i + 1])
        (all[static_cast<std::size_t>(between(random, 0, ranks - 1))].*member).push_back({cuts[i], cuts[i + 1]});
  };
  deal(&CheckpointShard::writes), deal(&CheckpointShard::writes_state);
  const std::size_t buffers = state.parameters.buffers().size();
  std::vector<int> writers;
  for (std::size_t b = 0; b < buffers; ++b) writers.push_back(static_cast<int>(between(random, 0, ranks - 1)));
  for (int r = 0; r < ranks; ++r) {
    CheckpointShard& s = all[static_cast<std::size_t>(r)];
    s.rank = r, s.ranks = ranks, s.layout = "ranks=" + std::to_string(ranks);
    const bool more = between(random, 0, 3) == 0;  // holds all, as a replica does, and writes its part
    s.holds = more ? std::vector<Slice>{{0, state.parameters.size()}} : s.writes;
    for (std::size_t b = 0; b < buffers; ++b)
      s.writes_buffers.push_back(writers[b] == r), s.holds_buffers.push_back(more || writers[b] == r);
    s.all_gather = [r, &texts](const std::string& mine) { return texts.all_gather(r, mine); };
  }
  return all;
}

/// body(rank) on each, as threads; what each threw, by rank.
std::vector<std::string> on_threads(int ranks, const std::function<void(int)>& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::jthread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      try {
        body(r);
      } catch (const std::exception& e) { errors[static_cast<std::size_t>(r)] = e.what(); }
    });
  threads.clear();
  return errors;
}

/// One of several ranks that saves: it holds the state of its slices only.
struct Group {
  Texts texts;
  std::vector<std::unique_ptr<State>> states;
  std::vector<CheckpointShard> shards;

  Group(int ranks, std::uint64_t seed, const Sizes& sizes = {}, int step = 0) : texts(ranks) {
    Random random(seed);
    for (int r = 0; r < ranks; ++r) states.push_back(std::make_unique<State>(sizes));
    shards = cut(*states[0], ranks, random, texts);
    if (step > 0) fill(step);
    for (int r = 0; r < ranks; ++r) state(r).optimizer.keep(shard(r).writes_state);
  }
  void fill(int step) {
    for (int r = 0; r < ranks(); ++r) {
      state(r).optimizer.keep({{0, state(r).parameters.size()}});
      state(r).fill(step);
      state(r).optimizer.keep(shard(r).writes_state);
    }
  }
  int ranks() const { return static_cast<int>(states.size()); }
  State& state(int r) { return *states[static_cast<std::size_t>(r)]; }
  const CheckpointShard& shard(int r) const { return shards[static_cast<std::size_t>(r)]; }
  /// What each rank threw.
  std::vector<std::string> save(const std::string& run, int step, int keep = 3) {
    return on_threads(ranks(),
                      [&](int r) { state(r).save(r == 0 ? run : "", step, {.keep_last = keep, .shard = shard(r)}); });
  }
  std::vector<std::string> load(const std::string& directory) {
    return on_threads(
        ranks(), [&](int r) { (void)load_checkpoint(directory, state(r).parameters, &state(r).optimizer, shard(r)); });
  }
};

bool none(const std::vector<std::string>& errors) {
  return std::ranges::all_of(errors, [](const std::string& e) { return e.empty(); });
}

/// What a rank has where it should, and what it left alone: "" if all is as in `whole`.
std::string difference(State& got, const CheckpointShard& shard, State& whole) {
  const auto holds = [](const std::vector<Slice>& slices, Index at) {
    return std::ranges::any_of(slices, [&](const Slice& s) { return s.begin <= at && at < s.end; });
  };
  const auto values = got.parameters.values().to_vector(), expected = whole.parameters.values().to_vector();
  for (auto& e : got.parameters.entries())
    for (Index i = e.slice.begin; i < e.slice.end; ++i)
      if (values[static_cast<std::size_t>(i)] != (holds(shard.holds, i) ? expected[static_cast<std::size_t>(i)] : -1))
        return fmt::format("element {} of {}", i - e.slice.begin, e.name);
  for (std::size_t b = 0; b < shard.holds_buffers.size(); ++b) {
    const auto mine = got.parameters.buffers()[b].tensor.to_vector();
    const auto all = whole.parameters.buffers()[b].tensor.to_vector();
    if (shard.holds_buffers[b] ? mine != all : mine[0] != -1) return got.parameters.buffers()[b].name;
  }
  for (std::size_t k = 0; k < whole.optimizer.state().size(); ++k) {
    const auto mine = got.optimizer.state()[k].second.to_vector(), all = whole.optimizer.state()[k].second.to_vector();
    std::size_t at = 0;
    for (const Slice& s : got.optimizer.kept())
      for (Index i = s.begin; i < s.end; ++i, ++at) {
        const auto in = [&](const Parameters::Entry& e) { return e.slice.begin <= i && i < e.slice.end; };
        if (std::ranges::any_of(got.parameters.entries(), in) && mine[at] != all[static_cast<std::size_t>(i)])
          return fmt::format("element {} of {}", i, whole.optimizer.state()[k].first);
      }
  }
  return got.optimizer.steps() == whole.optimizer.steps() ? "" : "the steps";
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  for (auto& entry : std::filesystem::directory_iterator(directory)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

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
      for (int a = 0; a < shape.rank(); ++a)
        at = at * shape[a] + b.at[a], wide = wide * shape[a] + b.at[a] + b.size[a] - 1;
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
    const test::Temporary folder;
    const Sizes sizes{between(random, 1, 4), between(random, 1, 5), between(random, 1, 3), between(random, 1, 6)};
    const int writers = static_cast<int>(between(random, 0, 5)), readers = static_cast<int>(between(random, 0, 5));
    INFO(fmt::format("case {}: {} writers, {} readers", i, writers, readers));  // 0: one that has all
    State whole(sizes);
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
      State all(sizes);
      CHECK(load_latest(folder.path(), all.parameters, &all.optimizer)->state.batch == 7);
      CheckpointShard everything{.holds = {{0, all.parameters.size()}}, .holds_buffers = {true, true}};
      CHECK(difference(all, everything, whole) == "");
    } else {
      Group group(readers, random(), sizes);
      CHECK(none(group.load(path)));
      for (int r = 0; r < readers; ++r) CHECK(difference(group.state(r), group.shard(r), whole) == "");
    }
    State alone(sizes);  // as trireme predict does
    CHECK(load_checkpoint(path, alone.parameters, nullptr).path == path);
    const auto name =
        std::filesystem::exists(path + "/model.safetensors") ? "model.safetensors" : "model.safetensors.index.json";
    State imported(sizes);
    import_weights(imported.parameters, read_safetensors(path + "/" + name), name);
    for (const State* s : {&alone, &imported})
      for (std::size_t e = 0; e < s->parameters.entries().size(); ++e)
        CHECK(s->parameters.entries()[e].tensor.to_vector() == whole.parameters.entries()[e].tensor.to_vector());
    CHECK(read_safetensors(path + "/" + name).at("1.num_batches_tracked").item() == 3);
  }
}

TEST_CASE("the reference implementation reads shards") {
  const test::Oracle oracle;
  State whole;
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
    const test::Temporary folder;
    Group before(2, 1, {}, 1);
    REQUIRE(none(before.save(folder.path(), 1)));
    const bool died = dies_at(at, [&] {
      Group group(2, 2, {}, 2);
      group.save(folder.path(), 2, 1);
    });
    const auto found = find_latest(folder.path());
    REQUIRE(found.has_value());
    CHECK(found->note.empty());
    State whole;
    whole.fill(static_cast<int>(found->state.step));
    Group after(3, 3);
    CHECK(none(after.load(found->path)));
    for (int r = 0; r < 3; ++r) CHECK(difference(after.state(r), after.shard(r), whole) == "");
    after.fill(4);
    CHECK(none(after.save(folder.path(), 4, 1)));
    CHECK(names_in(folder / "checkpoints") == std::vector<std::string>{"latest", "step_00000004"});
    if (!died) break;
    calls = at;
  }
  CHECK(calls > 30);
}

TEST_CASE(
    "an error of one rank is told on all, with the checkpoint before intact; interrupted and short writes go on") {
  int refused = 0;
  for (int at = 1;; ++at) {
    const test::Temporary folder;
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
    for (auto& name : names_in(folder / "checkpoints")) CHECK((!failed || !name.ends_with(".tmp")));
    if (shim.calls < at) break;
  }
  CHECK(refused > 20);
  const test::Temporary plain, cut_short;
  Group group(2, 2, {}, 1);
  CHECK(none(group.save(plain.path(), 1)));
  for (Fault fault : {Fault::interrupt, Fault::short_write}) {
    std::filesystem::remove_all(cut_short / "checkpoints");
    with_fault(fault, 0, 0, [&] { CHECK(none(group.save(cut_short.path(), 1))); });
    for (auto& name : names_in(plain / "checkpoints/step_00000001"))
      CHECK(test::slurp(cut_short / "checkpoints/step_00000001/" + name) ==
            test::slurp(plain / "checkpoints/step_00000001/" + name));
  }
}

TEST_CASE(
    "a shard that is damaged, missing, cut short or of another checkpoint: one line, and the one before is taken") {
  const test::Temporary folder;
  Group group(3, 7, {}, 1);
  REQUIRE(none(group.save(folder.path(), 1)));
  group.fill(2);
  REQUIRE(none(group.save(folder.path(), 2)));
  const std::string old = folder / "checkpoints/step_00000001/", path = folder / "checkpoints/step_00000002/";
  int shards = 0;
  for (const std::string& name : names_in(path)) {
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
  const test::Temporary folder;
  Group group(2, 9, {}, 1);
  REQUIRE(none(group.save(folder.path(), 1)));
  const std::string path = folder / "checkpoints/step_00000001/", index = path + "model.safetensors.index.json";
  const Json about = parse_json(test::slurp(index));
  CHECK(about["metadata"]["total_size"].get<std::size_t>() > 4u * 100);
  const auto refusal = [&](Json changed) {
    test::spill(index, json_text(changed));
    try {
      read_safetensors(index);
    } catch (const Error& e) { return std::string(e.what()); }
    return std::string();
  };
  Json plain = about;  // as Hugging Face writes it
  plain["metadata"].erase("files");
  CHECK(refusal(plain) == "");
  Json changed = plain;
  changed["weight_map"]["more"] = "model-00001-of-00002.safetensors";
  CHECK_THAT(refusal(changed), contains("there is no") && contains("\"more\""));
  for (const char* name : {"../model-00001-of-00002.safetensors", "/etc/passwd", "", ".hidden"}) {
    changed = plain;
    changed["weight_map"]["more"] = name;
    CHECK_THAT(refusal(changed), contains("is no file of its folder"));
  }
  changed = plain;
  changed["weight_map"]["more"] = 7;
  CHECK_THAT(refusal(changed), contains("malformed"));
  CHECK_THAT(refusal(Json::array()), contains("no weight_map"));
  changed = about;
  changed["metadata"]["files"]["model-00001-of-00002.safetensors"]["crc32"] = 1;
  CHECK_THAT(refusal(changed), contains("its CRC differs"));
  changed = plain;  // one of two files: tensors that are cut are not complete
  for (auto& [name, file] : about["weight_map"].items())
    if (file == "model-00002-of-00002.safetensors") changed["weight_map"].erase(name);
  CHECK_THAT(refusal(changed), contains("are in no file"));
}

TEST_CASE("pieces that overlap, reach outside or disagree are refused") {
  const test::Temporary folder;
  const auto refusal = [&](const std::vector<std::pair<Shape, Shape>>& boxes, const Shape& shape = {4, 3}) {
    std::vector<std::string> paths;
    for (auto& [at, size] : boxes) {
      SafetensorsShard shard;
      shard.add("w", Tensor::zeros(size), shape, at);
      const std::string name = std::to_string(paths.size());
      std::filesystem::remove(folder / name);
      write_shard(folder.path(), name, shard);
      paths.push_back(folder / name);
    }
    try {
      open_shards(paths);
    } catch (const Error& e) { return std::string(e.what()); }
    return std::string();
  };
  CHECK(refusal({{{0, 0}, {4, 3}}}) == "");
  CHECK(refusal({{{0, 0}, {2, 3}}, {{2, 0}, {2, 3}}}) == "");
  CHECK_THAT(refusal({{{0, 0}, {2, 3}}}), contains("6 of 12 elements of \"w\" are in no file"));
  CHECK_THAT(refusal({{{0, 0}, {3, 3}}, {{2, 0}, {2, 3}}}), contains("hold the same elements"));
  CHECK_THAT(refusal({{{3, 0}, {2, 3}}}), contains("does not lie in a tensor"));
  CHECK_THAT(refusal({{{-1, 0}, {2, 3}}}), contains("does not lie in a tensor"));
  CHECK_THAT(refusal({{{0}, {2}}}), contains("does not lie in a tensor"));
}

TEST_CASE("state of single ranks comes back to the same layout, and to no other") {
  const test::Temporary folder;
  Group group(3, 4, {}, 1);
  const auto errors = on_threads(3, [&](int r) {
    SaveOptions options{.shard = group.shard(r)};
    if (r != 1) options.local["residual"] = Tensor::full({2}, r + 1);
    group.state(r).save(folder.path(), 1, options);
  });
  CHECK(none(errors));
  const std::string path = folder / "checkpoints/step_00000001";
  std::vector<double> residuals(3);
  CHECK(none(on_threads(3, [&](int r) {
    const auto found = load_checkpoint(path, group.state(r).parameters, &group.state(r).optimizer, group.shard(r));
    residuals[static_cast<std::size_t>(r)] = found.local.empty() ? 0 : found.local.at("residual").to_vector()[1];
  })));
  CHECK(residuals == std::vector<double>{1, 0, 3});
  Group others(2, 5);
  for (const std::string& e : others.load(path))
    CHECK_THAT(e, contains("holds state of single ranks under ranks=3, which only the same layout can go on with") &&
                      contains("this one is ranks=2"));
  State alone;
  CHECK_THROWS_WITH(load_checkpoint(path, alone.parameters, &alone.optimizer), contains("one rank alone"));
  CHECK(load_checkpoint(path, alone.parameters, nullptr).state.step == 1);
}
