// StepProbe::consolidate(): whatever shares the optimizer's work or the weights, and whatever axes the shards lie on,
// every rank then has the whole weights and the whole optimizer state, to evaluate and to save.
#include <algorithm>

#include "framework/io/checkpoint.h"
#include "parallel/runtime/step_probe.h"
#include "tests/parallel/training.h"
#include "tests/support/temporary.h"

namespace test_gather {

using namespace trireme;
using namespace trireme::test;

namespace {

Module small_cnn() {
  Module model =
      Sequential{Conv2d(1, 4, 3), relu, Conv2d(4, 4, 3), relu, MaxPool(2), flatten, Linear(16, 6), relu, Linear(6, 4)};
  initialize(model, 1);
  convert(model, DType::f64);
  return model;
}
Tensor images(int step, Index rows = 12) {
  std::vector<double> values;
  for (Index i = 0; i < rows * 64; ++i)
    values.push_back(static_cast<double>(mix(static_cast<std::uint64_t>(step * 100000 + i)) % 1000) / 500 - 1);
  return Tensor::of(values, {rows, 8, 8, 1}, DType::f64);
}
Tensor labels(Index rows = 12) {
  std::vector<double> values;
  for (Index i = 0; i < rows; ++i) values.push_back(static_cast<double>(mix(static_cast<std::uint64_t>(i)) % 4));
  return Tensor::of(values, {rows}, DType::i64);
}

struct Gathered {
  std::vector<double> losses, weights, state, logits;
  bool agreed = true;
};
std::vector<double> all_of(const Optimizer& optimizer) {
  std::vector<double> all;
  for (auto& [name, flat] : optimizer.state())
    for (double v : flat.to_vector()) all.push_back(v);
  return all;
}

/// Trains on the mesh, and gathers in between and at the end. Where saved, or where ranks hold parts of the weights, a
/// serial Step reads what was saved.
Gathered trained(World& world, const std::string& mesh_text, const std::string& strategy, bool saved = false) {
  const OptimizerConfig optimizer_config = Adam{.lr = 0.01};
  Mesh mesh(world, parse_mesh(mesh_text));
  Step step(small_cnn(), cross_entropy, optimizer_config, mesh, parse_strategy(strategy));
  Gathered g;
  for (int i = 0; i < 4; ++i) {
    const auto [begin, end] = share(12, step.shard().rank, step.shard().size);
    g.losses.push_back(step(images(i).rows(begin, end), labels().rows(begin, end)).item());
    if (i == 1) StepProbe(step).consolidate();
  }
  StepProbe(step).consolidate();
  {
    const NoGrad off;
    const Tensor logits = step.model()(images(9));
    g.agreed = agree(world, logits);
    g.logits = logits.to_vector();
  }
  if (!saved && !StepProbe(step).is_tensor_parallel()) {
    g.weights = whole_weights(step.parameters());
    g.state = all_of(step.optimizer());
    for (auto& [name, flat] : step.optimizer().state()) g.agreed = agree(world, flat.blocks()[0]) && g.agreed;
    return g;
  }
  const Temporary folder;
  save_checkpoint(folder.path(), step.parameters(), step.optimizer(), {.step = 4}, {.write = world.main()});
  if (!world.main()) return g;
  World alone;
  Step loaded(small_cnn(), cross_entropy, optimizer_config, alone);
  load_latest(folder.path(), loaded.parameters(), &loaded.optimizer());
  g.weights = whole_weights(loaded.parameters());
  g.state = all_of(loaded.optimizer());
  return g;
}

struct Layout {
  std::string mesh, strategy;
};
/// In front of what shares the work.
const std::vector<Layout> layouts = {
    {"data=2", ""},
    {"data=4", "data_parallel(first_bucket=37, bucket=101) | "},
    {"h=2", "spatial | "},
    {"w=4", "spatial | "},
    {"h=2,w=2", "spatial | "},
    {"data=2,h=2", "spatial | data_parallel | "},
    {"data=2,h=2", "data_parallel(first_bucket=37, bucket=101) | spatial | "},
    {"tensor=2", "tensor | "},
    {"data=2,tensor=2", "tensor | data_parallel | "},
    {"tensor=2,h=2", "tensor | spatial | "},
    {"pipe=2", "pipeline(micro=2) | "},
    {"pipe=2,data=2", "pipeline(micro=2) | data_parallel | "},
    {"pipe=2,h=2", "pipeline(micro=2) | spatial | "},
    {"pipe=2,tensor=2", "pipeline(micro=2) | tensor | "},
};

}  // namespace

TEST_CASE("consolidate() gives every rank the serial run's weights and optimizer state, wherever their shards lie") {
  const bool judge = !under_mpi() || processes().rank() == 0;
  World alone;
  const Gathered want = trained(alone, "data=1", "serial");
  for (const Layout& layout : layouts)
    for (const char* sharing : {"zero(1)", "zero(2)", "zero(3)", "central_storage"}) {
      const int ranks = ranks_of(parse_mesh(layout.mesh));
      if (other_ranks(ranks)) continue;
      INFO(layout.mesh << " " << layout.strategy << sharing);
      const Gathered got = on_ranks(ranks, [&](World& world) {
        return trained(world, layout.mesh, layout.strategy + sharing, std::string(sharing) == "zero(3)");
      });
      CHECK(got.agreed);
      CHECK(distance(got.losses, want.losses) < 1e-11);
      CHECK(distance(got.logits, want.logits) < 1e-11);
      if (!judge) continue;
      CHECK(distance(got.weights, want.weights) < 1e-11);
      CHECK(distance(got.state, want.state) < 1e-11);
    }
}

namespace {

/// What reading throws; empty: nothing.
template <class F>
std::string error_of(F&& read) {
  try {
    read();
  } catch (const Error& e) { return e.what(); }
  return "";
}

Module normed() {
  Module model =
      Sequential{Conv2d(1, 4, 3), BatchNorm(4), relu, MaxPool(2), flatten, Linear(36, 6), relu, Linear(6, 4)};
  initialize(model, 1);
  convert(model, DType::f64);
  return model;
}

}  // namespace

TEST_CASE("weights that other ranks have are an Error to read between a step and consolidate()") {
  for (const Layout& layout :
       {Layout{"data=2", "zero(1)"}, Layout{"data=2", "zero(2)"}, Layout{"data=2", "zero(3)"},
        Layout{"pipe=2", "pipeline(micro=2)"}, Layout{"pipe=2,data=2", "pipeline(micro=2) | data_parallel | zero(1)"},
        Layout{"pipe=2,data=2", "pipeline(micro=2) | data_parallel | zero(3)"}, Layout{"h=2", "spatial | zero(2)"},
        Layout{"h=2", "spatial | zero(3)"}}) {
    const int ranks = ranks_of(parse_mesh(layout.mesh));
    if (other_ranks(ranks)) continue;
    INFO(layout.mesh << " " << layout.strategy);
    const std::vector<std::string> faults = on_ranks(ranks, [&](World& world) {
      std::vector<std::string> all;
      const auto expect = [&](const char* what, bool good, const std::string& got = "") {
        const Tensor mine = Tensor::full({1}, good ? 1 : 0, DType::i64);
        world.comm().all_reduce(mine, ReduceOp::min).wait();
        if (mine.item() == 0) all.push_back(fmt::format("{} (here: '{}')", what, got));
      };
      const auto refused = [](const std::string& text) {
        return text.find("call Step::gather_weights()") != text.npos;
      };
      Mesh mesh(world, parse_mesh(layout.mesh));
      Step step(normed(), cross_entropy, Adam{.lr = 0.01}, mesh, parse_strategy(layout.strategy));
      const auto model = [&] {
        for (auto& e : step.parameters().entries()) (void)e.tensor.to_vector();
        (void)step.model()(images(9));
      };
      const auto [begin, end] = share(12, step.shard().rank, step.shard().size);
      const auto train = [&, begin = begin, end = end] { step(images(1).rows(begin, end), labels().rows(begin, end)); };
      expect("before the first step the model runs", error_of(model) == "");
      train();
      const Temporary folder;
      // A model whose layers are split would leave the ranks waiting that find their first layers' weights.
      const bool split = step.plan().strategies[0] == "spatial";
      const auto whole = [&] {
        if (split) return model();
        const NoGrad off;
        (void)step.model()(images(9));
      };
      expect("the model", refused(error_of(whole)), error_of(whole));
      const auto save = [&] { save_checkpoint(folder.path(), step.parameters(), step.optimizer(), {.step = 1}); };
      expect("a checkpoint", error_of(save).find("consolidate()") != std::string::npos, error_of(save));
      // Each weight and running statistic is whole, or an Error.
      std::vector<bool> here;
      for (auto& e : step.parameters().entries()) here.push_back(error_of([&] { (void)e.tensor.to_vector(); }) == "");
      expect("some weight is elsewhere", std::find(here.begin(), here.end(), false) != here.end());
      std::vector<std::vector<double>> read;
      const auto& entries = step.parameters().entries();
      for (std::size_t i = 0; i < entries.size(); ++i)
        if (here[i]) read.push_back(entries[i].tensor.to_vector());
      for (auto& b : step.parameters().buffers())
        if (error_of([&] { (void)b.tensor.to_vector(); }) == "") read.push_back(b.tensor.to_vector());
      StepProbe(step).consolidate();
      std::size_t next = 0;
      bool same = true;
      for (std::size_t i = 0; i < entries.size(); ++i)
        if (here[i]) same = entries[i].tensor.to_vector() == read[next++] && same;
      expect("what could be read was what consolidate() gives", same);
      expect("behind consolidate() the model runs", error_of([&] {
                                                      const NoGrad off;
                                                      model();
                                                    }) == "");
      train();
      expect("the next step takes it away again", refused(error_of(whole)));
      return all;
    });
    CHECK(faults == std::vector<std::string>{});
  }
}

TEST_CASE("running statistics of other stages are an Error to read, and consolidate() brings them") {
  for (int ranks : rank_counts({2})) {
    if (ranks != 2) {
      SUCCEED("for two ranks");
      continue;
    }
    const auto seen = on_ranks(ranks, [&](World& world) {
      Mesh mesh(world, {{"pipe", 2}});
      Step step(normed(), cross_entropy, Sgd{.lr = 0.1}, mesh, pipeline({.micro = 2, .partition = "5"}));
      step(images(1), labels());
      const Tensor& mean = step.parameters().buffers().at(0).tensor;
      const bool refused = error_of([&] { (void)mean.to_vector(); }).find("gather_weights()") != std::string::npos;
      StepProbe(step).consolidate();
      return std::pair(refused == (world.rank() == 1), agree(world, mean) && mean.to_vector()[0] != 0);
    });
    CHECK(seen.first);
    CHECK(seen.second);
  }
}

TEST_CASE("consolidate() brings weights back after a step that a user's loss has ended") {
  for (const auto& [ranks, stage] : {std::pair{2, 1}, {2, 3}, {3, 2}, {3, 3}}) {
    if (other_ranks(ranks)) continue;
    const auto same = on_ranks(ranks, [&, stage = stage](World& world) {
      bool fails = false;
      const Loss loss = [&](const Tensor& a, const Tensor& b) {
        check(!fails, "loss", "no more");
        return cross_entropy(a, b);
      };
      Step step(small_cnn(), loss, Adam{.lr = 0.01}, world, zero(stage));
      const auto [begin, end] = share(12, world.rank(), world.size());
      const auto train = [&, begin = begin, end = end] { step(images(1).rows(begin, end), labels().rows(begin, end)); };
      train();
      StepProbe(step).consolidate();
      const auto before = whole_weights(step.parameters());
      fails = true;
      const bool failed = error_of(train).find("no more") != std::string::npos;
      StepProbe(step).consolidate();
      return failed && whole_weights(step.parameters()) == before &&
             agree(world, step.parameters().values().blocks()[0]);
    });
    CHECK(same);
  }
}

}  // namespace test_gather
