// Ranks that are about to do different things are found out before the first step, and the difference is shown.
#include "parallel/comm/world/compare.h"

#include "framework/layers/init.h"
#include "framework/layers/layers.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace test_compare {

using namespace trireme;
using namespace trireme::test;

namespace {

/// What one rank gives to its Step.
struct Given {
  Module model = Sequential{Conv2d(1, 3, 3), relu, flatten, Linear(48, 12), Dropout(0.4), Linear(12, 5)};
  Loss loss = cross_entropy;
  OptimizerConfig optimizer_config = Sgd{.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-4};
  Strategy strategy = data_parallel();
  StepOptions options = {};
};
/// What changes it on the odd rank, and what the error then shows.
struct Difference {
  std::function<void(Given&)> change;
  std::vector<std::string> shown;
};

Module linear(Index in, Index out) { return Sequential{flatten, Linear(in, out)}; }
Tensor twice_mse(const Tensor& a, const Tensor& b) { return scale(mse_loss(a, b), 2); }
Tensor thrice_mse(const Tensor& a, const Tensor& b) { return scale(mse_loss(a, b), 3); }
Tensor taking(Tensor x) { return relu(x); }         // NOLINT: as layers that write over their input do
Tensor taking_too(Tensor x) { return sigmoid(x); }  // NOLINT
Module with_activation(Module activation) {
  return Sequential{Conv2d(1, 3, 3), std::move(activation), flatten, Linear(48, 12), Dropout(0.4), Linear(12, 5)};
}

const std::vector<Difference> differences = {
    {[](Given& g) { g.optimizer_config = Sgd{.lr = 0.2, .momentum = 0.9, .weight_decay = 1e-4}; },
     {"optimizer: sgd(lr=0.1, momentum=0.9,", "optimizer: sgd(lr=0.2, momentum=0.9,"}},
    {[](Given& g) { g.optimizer_config = Sgd{.lr = 0.1, .momentum = 0.8, .weight_decay = 1e-4}; },
     {"momentum=0.9", "momentum=0.8"}},
    {[](Given& g) { g.optimizer_config = Sgd{.lr = 0.1, .momentum = 0.9}; },
     {"weight_decay=0.0001", "weight_decay=0,"}},
    {[](Given& g) { g.optimizer_config = Sgd{.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-4, .nesterov = true}; },
     {"nesterov=true"}},
    {[](Given& g) { g.optimizer_config = Adam{}; }, {"sgd(lr=0.1", "adam(lr=0.001, beta1=0.9, beta2=0.999"}},
    {[](Given& g) { g.optimizer_config = Sgd{.lr = cosine(0.1, 100), .momentum = 0.9, .weight_decay = 1e-4}; },
     {"lr=cosine(0.1, steps=100, min_lr=0)"}},
    {[](Given& g) {
       g.optimizer_config =
           Sgd{.lr = Schedule(std::function([](std::int64_t) { return 0.3; })), .momentum = 0.9, .weight_decay = 1e-4};
     },
     {"lr=a function, 0.3 at step 0"}},
    {[](Given& g) { g.loss = [](const Tensor& a, const Tensor& b) { return cross_entropy(a, b); }; }, {"loss: "}},
    {[](Given& g) { g.loss = mse_loss; }, {"'loss: trireme::cross_entropy(", "'loss: trireme::mse_loss("}},
    {[](Given& g) { g.loss = twice_mse; }, {"'loss: trireme::cross_entropy(", "'loss: the function at "}},
    {[](Given& g) { g.model = with_activation(trireme::tanh); },
     {"'layer 1: trireme::relu(", "'layer 1: trireme::tanh("}},
    {[](Given& g) { g.model = with_activation(taking); }, {"'layer 1: the function at "}},
    {[](Given& g) { g.options.seed = 7; }, {"'seed: 0'", "'seed: 7'"}},
    {[](Given& g) { g.options.optimizer.clip_norm = 0.5; }, {"'clip_norm: 0'", "'clip_norm: 0.5'"}},
    {[](Given& g) { g.options.optimizer.decay_biases = false; }, {"decay_biases: false"}},
    {[](Given& g) { g.options.checks.finite = false; }, {"checks.finite: false"}},
    {[](Given& g) { g.options.loss_scale = 1024; }, {"loss_scale: 1024"}},
    {[](Given& g) { g.options.settings = "batch: 64\ndata: mnist"; }, {"rank 0 has nothing there", "batch: 64"}},
    {[](Given& g) { g.strategy = data_parallel({.bucket = 100}); }, {"bucket=100,"}},
    {[](Given& g) { g.strategy = zero(1); }, {"strategy: data_parallel(axis=data", "strategy: zero(1)"}},
    {[](Given& g) { g.strategy = data_parallel({.norm_scope = NormScope::group, .norm_group = 1}); },
     {"norm_scope=group, norm_group=1"}},
    {[](Given& g) { g.model = linear(36, 5); }, {"layer"}},
    {[](Given& g) {
       g.model = Sequential{Conv2d(1, 3, 3), relu, flatten, Linear(48, 12), Dropout(0.3), Linear(12, 5)};
     },
     {"Dropout, p 0.4", "Dropout, p 0.3"}},
    {[](Given& g) {
       g.model = Sequential{Conv2d(1, 3, 3, {.stride = 2}), relu, flatten, Linear(48, 12), Dropout(0.4), Linear(12, 5)};
     },
     {"stride [1, 1, 1]", "stride [2, 2, 2]"}},
    {[](Given& g) { convert(g.model, DType::f64); }, {"0.weight: f32 [3, 3, 3, 1]", "0.weight: f64 [3, 3, 3, 1]"}},
};

/// Rank 0's error (under MPI: this rank's) when each rank makes a Step of what it is given.
std::string error_of(int ranks, const std::function<void(Given&, int rank)>& change, bool all_agree = false) {
  return on_ranks(ranks, [&](World& world) {
    Given g;
    change(g, world.rank());
    std::string text;
    try {
      Step step(g.model, g.loss, g.optimizer_config, world, g.strategy, g.options);
    } catch (const Error& e) { text = e.what(); }
    if (!all_agree) return text;
    const Tensor hash = Tensor::full({1}, static_cast<double>(std::hash<std::string>()(text) % 1000003), DType::i64);
    return agree(world, hash) ? text : "ranks have different errors";
  });
}

}  // namespace

TEST_CASE("ranks that are given different things are told the first difference, all the same one") {
  for (int ranks : rank_counts({2, 3}))
    for (std::size_t i = 0; i < differences.size(); ++i) {
      const int odd = ranks - 1;
      const std::string text = error_of(
          ranks,
          [&](Given& g, int rank) {
            if (rank == odd) differences[i].change(g);
          },
          true);
      INFO("difference " << i << ", " << ranks << " ranks: " << text);
      CHECK_THAT(text, contains("step: the ranks disagree: rank 0 has "));
      CHECK_THAT(text, contains(fmt::format("rank {} has ", odd)));
      for (auto& words : differences[i].shown) CHECK_THAT(text, contains(words));
    }
}

TEST_CASE("plain functions of one type are told apart, the program's own by their place in it") {
  for (int ranks : rank_counts({2, 3})) {
    const std::string losses = error_of(ranks, [](Given& g, int rank) { g.loss = rank == 0 ? twice_mse : thrice_mse; });
    CHECK_THAT(losses, contains("rank 0 has 'loss: the function at ") && contains(" has 'loss: the function at "));
    const std::string layers =
        error_of(ranks, [](Given& g, int rank) { g.model = with_activation(rank == 0 ? taking : taking_too); });
    CHECK_THAT(layers,
               contains("rank 0 has 'layer 1: the function at ") && contains("1 has 'layer 1: the function at "));
  }
}

TEST_CASE("ranks that are given the same start, and closures of one type count as the same, whatever they captured") {
  for (int ranks : rank_counts({2, 3})) {
    CHECK(error_of(ranks, [](Given&, int) {}) == "");
    const auto captured = [](Given& g, int rank) {
      g.loss = [by = 1.0 + rank](const Tensor& a, const Tensor& b) { return scale(cross_entropy(a, b), by); };
      g.model = with_activation([by = 1.0 + rank](const Tensor& x) { return scale(relu(x), by); });
    };
    CHECK(error_of(ranks, captured) == "");
    for (auto& difference : differences)
      CHECK(error_of(ranks, [&](Given& g, int) { difference.change(g); }).find("the ranks disagree") == std::string::npos);
  }
}

TEST_CASE("models of equal padded size are told apart") {
  for (int ranks : rank_counts({2})) {
    const std::string text = error_of(ranks, [](Given& g, int rank) {
      g.model = linear(6, rank == 0 ? 4 : 3);
      g.loss = twice_mse;
    });
    CHECK_THAT(text, contains("rank 0 has 'tensor 1.weight: f32 [4, 6] weight', rank 1 has "
                              "'tensor 1.weight: f32 [3, 6] weight'"));
  }
}

TEST_CASE("ranks on other coordinates of axes that split layers are compared too") {
  const std::pair<const char*, const char*> splits[] = {
      {"tensor=2", "tensor"}, {"h=2", "spatial"}, {"data=2", "one_weird_trick"}, {"pipe=2", "pipeline(micro=2)"}};
  for (int ranks : rank_counts({2}))
    for (auto& [mesh_text, strategy] : splits) {
      if (ranks != 2) continue;
      const std::string text = on_ranks(ranks, [&, mesh_text = mesh_text, strategy = strategy](World& world) {
        Mesh mesh(world, parse_mesh(mesh_text));
        try {
          Step step(Sequential{Conv2d(1, 4, 3), relu, flatten, Linear(64, 4)}, cross_entropy,
                    Sgd{.lr = world.rank() == 0 ? 0.1 : 0.2}, mesh, parse_strategy(strategy));
        } catch (const Error& e) { return std::string(e.what()); }
        return std::string();
      });
      INFO(strategy);
      CHECK_THAT(text, contains("sgd(lr=0.1, "));
      CHECK_THAT(text, contains("sgd(lr=0.2, "));
    }
}

TEST_CASE("all odd ranks are named") {
  if (threads_only("it brings its own ranks")) return;
  const std::string text =
      error_of(4, [](Given& g, int rank) { g.options.seed = static_cast<std::uint64_t>(rank % 2); });
  CHECK_THAT(text, contains("rank 0 has 'seed: 0', rank 1 has 'seed: 1'; rank 3 differs from rank 0, too"));
}

TEST_CASE("ranks with other meshes are told so") {
  for (int ranks : rank_counts({2})) {
    const std::string text = on_ranks(ranks, [&](World& world) {
      try {
        Mesh mesh(world, {{world.rank() == 0 ? "data" : "h", ranks}});
      } catch (const Error& e) { return std::string(e.what()); }
      return std::string();
    });
    CHECK_THAT(text,
               contains(fmt::format("mesh: the ranks disagree: rank 0 has 'data={0}', rank 1 has 'h={0}'", ranks)));
  }
}

}  // namespace test_compare
