// verify(): every strategy equals the serial run, and planted faults are named.
#include "parallel/analysis/verify_claims.h"

#include "framework/autograd/step_context.h"
#include "framework/layers/init.h"
#include "framework/layers/layers.h"
#include "tests/parallel/pairs.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace test_verify {

using namespace trireme;
using namespace trireme::test;

namespace {

Subject subject_of(std::function<Sequential()> layers, Shape input,
                   OptimizerConfig optimizer_config = Sgd{.lr = 0.1, .momentum = 0.9}) {
  return {.model =
              [layers] {
                Module model = layers();
                initialize(model, 7);
                convert(model, DType::f64);
                return model;
              },
          .loss = cross_entropy,
          .optimizer_config = optimizer_config,
          .batch =
              [input](int step) {
                const Index rows = 24;
                Shape shape{rows};
                for (Index extent : input) shape.push_back(extent);
                std::vector<double> x, y;
                for (Index i = 0; i < shape.numel(); ++i)
                  x.push_back(static_cast<double>(mix(static_cast<std::uint64_t>(step * 100000 + i)) % 1000) / 500 - 1);
                for (Index i = 0; i < rows; ++i)
                  y.push_back(static_cast<double>(mix(static_cast<std::uint64_t>(i)) % 3));
                return std::pair(Tensor::of(x, shape, DType::f64), Tensor::of(y, {rows}, DType::i64));
              }};
}
Subject mlp() {
  return subject_of([] { return Sequential{Linear(5, 8), relu, Dropout(0.2), Linear(8, 6), relu, Linear(6, 3)}; }, {5});
}
Subject normed() {
  return subject_of(
      [] { return Sequential{Conv2d(1, 4, 3), BatchNorm(4), relu, flatten, Linear(64, 6), relu, Linear(6, 3)}; },
      {6, 6, 1});
}

std::string found(const Subject& subject, int ranks, const std::string& axis, const Strategy& strategy,
                  const VerifyOptions& options = {}) {
  return on_ranks(ranks, [&](World& world) {
    Mesh mesh(world, {{axis.empty() ? "data" : axis, ranks}});
    auto difference = verify(subject, mesh, strategy, options);
    return difference ? difference->to_string() : std::string();
  });
}

/// data_parallel without the reduction of the slice that element lies in.
Strategy forgetful(Index element) {
  return data_parallel({.first_bucket = 8, .bucket = 8}) | Strategy("forgetful", Claim::exact, [element](Plan plan) {
           for (Action& a : plan.programs[0].actions)
             if (a.kind == ActionKind::all_reduce && a.slice.begin <= element && element < a.slice.end)
               a.slice.end = a.slice.begin;
           return plan;
         });
}

}  // namespace

TEST_CASE("every exact strategy is verified") {
  for (auto& row : strategies()) {
    const Strategy strategy = parse_strategy(exact_text(row));
    INFO(row.name);
    bool verified = false;
    if (strategy.claim() != Claim::exact) continue;                                    // the next test
    if (!strategy.split.context.empty() || !strategy.split.experts.empty()) continue;  // they need texts
    for (int ranks : rank_counts({1, 2, 3, 4})) {
      if ((row.axis.empty() && ranks > 1) || ranks < row.least) continue;
      INFO(row.name << " on " << ranks << " ranks");
      if (strategy.split.any() && ranks > 3) continue;  // outputs of the last layer
      if (strategy.split.image.empty()) CHECK(found(mlp(), ranks, row.axis, strategy) == "");
      CHECK(found(normed(), ranks, row.axis, strategy, {.steps = 5}) == "");
      verified = true;
    }
    CHECK((under_mpi() || verified));
  }
}

TEST_CASE("workers that train apart equal the serial run where they meet in every step") {
  const auto plain = [](Subject s) {
    s.optimizer_config = Sgd{.lr = 0.1};
    return s;
  };
  for (int ranks : rank_counts({1, 2, 3, 4}))
    for (const char* strategy : {"local_sgd(every=1)", "gossip(graph=complete)"}) {
      INFO(strategy << " on " << ranks << " ranks");
      for (const Subject& subject : {plain(mlp()), plain(normed())})
        CHECK(found(subject, ranks, "data", parse_strategy(strategy), {.steps = 4}) == "");
    }
  for (const char* strategy : {"local_sgd(every=2)", "gossip(graph=ring)", "easgd(every=1)"}) {
    INFO(strategy);
    const int ranks = rank_counts({4})[0];
    if (ranks > 3) CHECK(found(plain(mlp()), ranks, "data", parse_strategy(strategy), {.steps = 4}) != "");
  }
}

TEST_CASE("running statistics that are zero but for rounding are equal") {
  // A batch norm, a convolution without bias, a batch norm: the mean that the second one sees is 0.
  const Subject bottleneck = subject_of(
      [] {
        return Sequential{Conv2d(1, 4, 3), BatchNorm(4), Conv2d(4, 6, 1, {.bias = false}), BatchNorm(6), relu,
                          flatten,         Linear(96, 3)};
      },
      {6, 6, 1});
  for (int ranks : rank_counts({2, 3})) CHECK(found(bottleneck, ranks, "data", data_parallel(), {.steps = 3}) == "");
}

TEST_CASE("a strategy that forgets a reduction is refused by check, and caught when it runs all the same") {
  for (int ranks : rank_counts({2, 3})) {
    CHECK_ERROR(found(mlp(), ranks, "data", forgetful(0)), usage, "plan", "all_reduce");
    const auto text = found(mlp(), ranks, "data", forgetful(0), {.step = {.refuse_unsound = false}});
    INFO(text);
    CHECK(text.starts_with("step 1, rank 0: the gradient of '0.weight' of layer '0' differs by "));
  }
}

TEST_CASE("what a run was compared with is told") {
  const auto against = [](int ranks, const Subject& subject, const std::string& axis, const std::string& strategy) {
    return on_ranks(ranks, [&](World& world) {
      Mesh mesh(world, {{axis, ranks}});
      std::string text;
      const auto difference = verify(subject, mesh, parse_strategy(strategy), {.steps = 2}, &text);
      return (difference ? "differs from " : "") + text;
    });
  };
  const int ranks = rank_counts({2})[0];
  CHECK(against(ranks, mlp(), "data", "data_parallel(norm_scope=local)") == "the serial run");
  CHECK(against(ranks, normed(), "data", "data_parallel") == "the serial run (batch norm: global)");
  CHECK(against(ranks, normed(), "data", "data_parallel(norm_scope=local)") ==
        "a serial run whose batch norms see each rank's rows (batch norm: local: each rank's rows)");
  CHECK(against(ranks, normed(), "pipe", "pipeline(micro=3)") ==
        "the serial run in the same 3 micro-batches (batch norm: each micro-batch)");
  CHECK(against(ranks, normed(), "data", "accumulate(micro=3) | data_parallel") ==
        "the serial run in the same 3 micro-batches (batch norm: each micro-batch over all ranks)");
}

TEST_CASE("a difference that only the optimizer's state or an evaluation shows is found") {
  for (int ranks : rank_counts({2, 3})) {
    Subject s = mlp();
    s.optimizer_config = Sgd{.lr = 1e-300, .momentum = 0.9};  // no weight moves, but the momentum takes the gradient
    CHECK(found(s, ranks, "data", data_parallel(), {.steps = 3}) == "");
    CHECK(found(s, ranks, "data", zero(1), {.steps = 3}) == "");
    const auto text = found(s, ranks, "data", forgetful(0), {.steps = 3, .step = {.refuse_unsound = false}});
    INFO(text);
    CHECK(text.starts_with("step 1, rank 0: the gradient of '0.weight' of layer '0' differs by "));
  }
  const int ranks = rank_counts({2})[0];
  Subject s = mlp();
  s.model = [make = s.model] {
    thread_local int made = 0;
    const bool odd = made++ % 2 == 0;  // the run under the strategy comes first
    return Module(
        Sequential{make(), [odd](const Tensor& x) { return odd && !is_training(x) ? scale(x, 1 + 1e-6) : x; }});
  };
  const auto text = found(s, ranks, "data", data_parallel(), {.steps = 2});
  INFO(text);
  CHECK(text.starts_with("step 2, rank 0: the prediction differs by "));
}

TEST_CASE("the first step that differs is named") {
  const int ranks = rank_counts({2})[0];
  Subject s = mlp();
  // Only under the strategy do others have rows, too.
  s.loss = [](const Tensor& prediction, const Tensor& labels) {
    const BatchContext& batch = batch_of(prediction);
    const Tensor loss = cross_entropy(prediction, labels);
    return batch.step == 3 && batch.is_share() ? scale(loss, 1.0 + 1e-6) : loss;
  };
  const auto text = found(s, ranks, "data", data_parallel());
  INFO(text);
  CHECK(text.starts_with("step 4, rank 0: the gradient of '5.bias' of layer '5' differs by "));
  CHECK(found(s, ranks, "data", data_parallel(), {.steps = 3}) == "");
  CHECK(found(s, ranks, "data", data_parallel(), {.tolerance = 1e-4}) == "");
}

}  // namespace test_verify
