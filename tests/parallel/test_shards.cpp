// Checkpoints of a Step: each rank writes what it holds, with nothing gathered, and any layout goes on from what any
// other has written. What consolidate() brings together, saved whole, says what must be in the shards.
#include <filesystem>

#include "framework/io/checkpoint.h"
#include "parallel/comm/world/compare.h"
#include "parallel/runtime/step_probe.h"
#include "tests/parallel/training.h"
#include "tests/support/temporary.h"

namespace test_shards {

using namespace trireme;
using namespace trireme::test;

// The page cache outlives a process, and thousands of real ones take minutes.
extern "C" int fsync(int) { return 0; }

namespace {

struct Layout {
  std::string mesh, strategy;
};
std::vector<Layout> layouts() {
  std::vector<Layout> all{{"data=1", "serial"},
                          {"data=3", "data_parallel(first_bucket=37, bucket=101)"},
                          {"tensor=2", "tensor"},
                          {"tensor=3", "tensor"},
                          {"pipe=2", "pipeline(micro=2)"},
                          {"pipe=3", "pipeline(micro=2, schedule=zb-h1)"},
                          {"pipe=2,tensor=2", "pipeline(micro=2) | tensor"},
                          {"data=4", "one_weird_trick"},
                          {"h=2", "spatial"},
                          {"data=2", "central_storage"}};
  for (const std::string zero : {"zero(1)", "zero(2)", "zero(3)"}) {
    all.push_back({"data=2", zero});
    all.push_back({"data=3", "data_parallel(first_bucket=37, bucket=101) | " + zero});
    all.push_back({"pipe=2,data=2", "pipeline(micro=2) | data_parallel | " + zero});
    all.push_back({"data=2,tensor=2", "tensor | data_parallel | " + zero});
    all.push_back({"data=4", "one_weird_trick | " + zero});
    all.push_back({"data=2,h=2", "spatial | data_parallel(first_bucket=37, bucket=101) | " + zero});
  }
  std::erase_if(all, [](const Layout& l) { return under_mpi() && ranks_of(parse_mesh(l.mesh)) != processes().size(); });
  return all;
}

Module network() {
  Module model = Sequential{Conv2d(1, 6, 3, {.bias = false}),
                            BatchNorm(6),
                            relu,
                            Conv2d(6, 5, 3),
                            relu,
                            MaxPool(2),
                            flatten,
                            Linear(20, 7),
                            relu,
                            Linear(7, 4)};
  initialize(model, 1);
  return model;
}
Tensor images(int step) {
  std::vector<double> values;
  for (Index i = 0; i < 12 * 64; ++i)
    values.push_back(static_cast<double>(mix(static_cast<std::uint64_t>(step * 100000 + i)) % 1000) / 500 - 1);
  return Tensor::of(values, {12, 8, 8, 1});
}
Tensor labels() {
  std::vector<double> values;
  for (Index i = 0; i < 12; ++i) values.push_back(static_cast<double>(mix(static_cast<std::uint64_t>(i)) % 4));
  return Tensor::of(values, {12}, DType::i64);
}

struct Run {
  Mesh mesh;
  Step step;
  Run(World& world, const Layout& l)
      : mesh(world, parse_mesh(l.mesh)),
        step(network(), cross_entropy, Adam{.lr = 0.01}, mesh, parse_strategy(l.strategy)) {}
  void train(int from, int to) {
    for (int i = from; i < to; ++i) {
      const auto [begin, end] = share(12, step.shard().rank, step.shard().size);
      step(images(i).rows(begin, end), labels().rows(begin, end)).item();
    }
  }
  std::string save(const std::string& run, int at) {
    return save_checkpoint(run, step.parameters(), step.optimizer(), {.step = at}, {.shard = step.checkpoint_shard()});
  }
  /// As one file each, by way of all ranks.
  void save_whole(World& world, const std::string& run, int at) {
    StepProbe(step).consolidate();
    save_checkpoint(run, step.parameters(), step.optimizer(), {.step = at}, {.write = world.main()});
    world.comm().barrier();
  }
};

/// A folder that all ranks know, made and removed by rank 0.
class Shared {
 public:
  Shared() {
    if (!under_mpi() || processes().main()) own_.emplace();
    path_ = own_ ? own_->path() : "";
    if (under_mpi()) path_ = broadcast_text(processes().comm(), path_, 0);
  }
  ~Shared() {
    if (under_mpi()) processes().comm().barrier();
  }
  Shared(const Shared&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::optional<Temporary> own_;
  std::string path_;
};

std::string at_step(const std::string& run, int step, const std::string& file) {
  return fmt::format("{}/checkpoints/step_{:08}/{}", run, step, file);
}
/// The first tensor in which shards differ from the whole files; "": none does.
std::string difference(const std::string& shards, const std::string& whole, int step) {
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    std::string path = at_step(shards, step, file);
    if (!std::filesystem::exists(path)) path += ".index.json";
    const SafetensorsFile got = read_safetensors(path), want = read_safetensors(at_step(whole, step, file));
    if (got.tensors.size() != want.tensors.size()) return "the number of tensors";
    for (auto& [name, tensor] : want.tensors)
      if (!got.find(name) || got.at(name).to_vector() != tensor.to_vector()) return name;
  }
  return "";
}

}  // namespace

TEST_CASE("any layout goes on from what any other saved: weights, statistics and optimizer are the same to the bit") {
  const Shared folder;
  const auto all = layouts();
  const bool judge = !under_mpi() || processes().main();
  if (!judge) SUCCEED("rank 0 judges");
  for (std::size_t a = 0; a < all.size(); ++a) {
    INFO(all[a].mesh << " " << all[a].strategy);
    const std::string shards = folder / fmt::format("shards{}", a), whole = folder / fmt::format("whole{}", a);
    const std::string path = on_ranks(ranks_of(parse_mesh(all[a].mesh)), [&](World& world) {
      Run run(world, all[a]);
      run.train(0, 3);
      const std::string at = run.save(shards, 3);
      run.save_whole(world, whole, 3);
      return at;
    });
    if (judge) CHECK(difference(shards, whole, 3) == "");
    for (std::size_t b = 0; b < all.size(); ++b) {
      if ((a * 7 + b) % 5 != 0 && a != b && !std::getenv("TRIREME_TEST_ALL")) continue;
      INFO("then " << all[b].mesh << " " << all[b].strategy);
      const std::string again = folder / fmt::format("again{}_{}", a, b), once = again + "_whole";
      on_ranks(ranks_of(parse_mesh(all[b].mesh)), [&](World& world) {
        Run run(world, all[b]);
        run.train(5, 6);  // something else
        const LoadedCheckpoint found = run.step.load_checkpoint(path);
        run.save(again, static_cast<int>(found.state.step));
        run.save_whole(world, once, 3);
        return 0;
      });
      if (!judge) continue;
      for (const char* file : {"model.safetensors", "optimizer.safetensors"})
        CHECK((slurp(at_step(once, 3, file)) == slurp(at_step(whole, 3, file))));
      CHECK(difference(again, whole, 3) == "");
      for (const std::string& used : {again, once}) std::filesystem::remove_all(used);
    }
  }
}

TEST_CASE("a run that is saved and goes on has the bits of one that was not, wherever its ranks hold the state") {
  const Shared folder;
  const bool judge = !under_mpi() || processes().main();
  if (!judge) SUCCEED("rank 0 judges");
  const auto all = layouts();
  for (std::size_t l = 0; l < all.size(); ++l) {
    INFO(all[l].mesh << " " << all[l].strategy);
    const std::string run_to = folder / fmt::format("{}", l);
    on_ranks(ranks_of(parse_mesh(all[l].mesh)), [&](World& world) {
      Run straight(world, all[l]);
      straight.train(0, 2);
      const std::string at = straight.save(run_to + "a", 2);
      straight.train(2, 4);
      straight.save_whole(world, run_to + "b", 4);
      Run resumed(world, all[l]);
      resumed.step.load_checkpoint(at);
      resumed.train(2, 4);
      resumed.save_whole(world, run_to + "c", 4);
      return 0;
    });
    if (judge)
      for (const char* file : {"model.safetensors", "optimizer.safetensors"})
        CHECK((slurp(at_step(run_to + "b", 4, file)) == slurp(at_step(run_to + "c", 4, file))));
  }
}

TEST_CASE("saving gathers nothing: texts alone are sent, weights stay where they are, each element is written once") {
  const Shared folder;
  for (const Layout& l : layouts()) {
    INFO(l.mesh << " " << l.strategy);
    const std::string run_to = folder / std::to_string(mix(std::hash<std::string>()(l.mesh + l.strategy)));
    const int ranks = ranks_of(parse_mesh(l.mesh));
    const auto [bytes, kept] = on_ranks(ranks, [&](World& world) {
      Run run(world, l);
      run.train(0, 2);
      CheckpointShard shard = run.step.checkpoint_shard();
      std::size_t bytes = 0;
      shard.all_gather = [&bytes, inner = shard.all_gather](const std::string& mine) {
        bytes += mine.size();
        return inner(mine);
      };
      const auto readable = [&] {
        std::vector<bool> all;
        for (auto& e : run.step.parameters().entries()) {
          all.push_back(true);
          try {
            (void)e.tensor.view();
          } catch (const Error&) { all.back() = false; }
        }
        return all;
      };
      const auto before = readable();
      const auto state = run.step.optimizer().kept();
      save_checkpoint(run_to, run.step.parameters(), run.step.optimizer(), {.step = 2}, {.shard = shard});
      const bool elsewhere = std::find(before.begin(), before.end(), false) != before.end();
      const bool divided = l.strategy.find("zero(") != l.strategy.npos || l.mesh.starts_with("pipe");
      return std::pair(bytes, elsewhere == divided && readable() == before && run.step.optimizer().kept() == state);
    });
    CHECK(kept);
    CHECK(bytes < 1000);  // of the model's 5,000: a path, names, sizes
    if (under_mpi() && !processes().main()) continue;
    std::size_t files = 0, size = 0;
    for (auto& entry : std::filesystem::directory_iterator(at_step(run_to, 2, ""))) {
      const std::string name = entry.path().filename();
      if (!name.ends_with(".safetensors")) continue;
      ++files;
      const SafetensorsReader reader(entry.path());
      for (auto& e : reader.header().entries) size += e.end - e.begin;
    }
    World alone;
    Run serial(alone, {"data=1", "serial"});
    Index numbers = 0;
    for (auto& e : serial.step.parameters().entries()) numbers += 3 * e.tensor.numel();  // and Adam's two
    for (auto& b : serial.step.parameters().buffers()) numbers += b.tensor.numel();
    CHECK(size == static_cast<std::size_t>(numbers) * 4 + 8);  // and one num_batches_tracked
    CHECK((files > 2) == (l.strategy.find("zero") != l.strategy.npos || l.mesh.find("pipe") != l.mesh.npos ||
                          l.mesh.find("tensor") != l.mesh.npos || l.strategy == "one_weird_trick"));
  }
}

TEST_CASE("what a rank cannot write or read is told on all ranks") {
  if (threads_only()) return;
  const Shared folder;
  spill(folder / "file", "");
  const auto told = on_ranks(3, [&](World& world) {
    Run run(world, {"data=3", "zero(3)"});
    run.train(0, 1);
    std::string mine;
    try {
      run.save(folder / "file", 1);
    } catch (const Error& e) { mine = e.what(); }
    auto all = gather_texts(world.comm(), mine);
    mine.clear();
    const std::string path = run.save(folder / "run", 1);
    world.comm().barrier();
    if (world.main()) spill(path + "/model-00002-of-00003.safetensors", "damaged");
    world.comm().barrier();
    try {
      run.step.load_checkpoint(path);
    } catch (const Error& e) { mine = e.what(); }
    for (auto& text : gather_texts(world.comm(), mine)) all.push_back(std::move(text));
    StepProbe(run.step).consolidate();  // what was there is there still
    return all;
  });
  REQUIRE(told.size() == 6);
  for (int r = 0; r < 3; ++r) {
    CHECK_THAT(told[static_cast<std::size_t>(r)], contains("file") && contains("not a directory"));
    CHECK_THAT(told[static_cast<std::size_t>(3 + r)], contains("model-00002-of-00003.safetensors has 7 bytes"));
  }
}

}  // namespace test_shards
