// Loss scaling (parallel/runtime/loss_scale.h), alone and in Step on the CPU: steps that overflow, and going on from a
// checkpoint.
#include "parallel/runtime/loss_scale.h"
#include "parallel/runtime/step_probe.h"
#include "parallel/runtime/step_resume.h"

#include "framework/layers/init.h"
#include "framework/layers/layers.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace test_loss_scale {

using namespace trireme;
using namespace trireme::test;

namespace {

/// Two products of 16 numbers each that see inputs of their own: `large` fills the first half of the flat block.
struct Halves {
  Linear large{1, 16, {.bias = false}}, small{1, 16, {.bias = false}};
  Tensor operator()(const Tensor& x) const {
    const auto inputs = split(x, {1, 1}, 1);
    return large(inputs[0]) + small(inputs[1]);
  }
  void visit(const StateVisitor& v) {
    v("large", large);
    v("small", small);
  }
};

Tensor sum_loss(const Tensor& prediction, const Tensor&) { return scale(sum(prediction), 1.0 / 16); }

Tensor rows_of(Index rows, double large, double small) {
  std::vector<double> values;
  for (Index i = 0; i < rows; ++i) values.insert(values.end(), {large, small});
  return Tensor::of(values, {rows, 2});
}

Module mlp() {
  Module model = Sequential{Linear(2, 12), relu, Linear(12, 9), relu, Linear(9, 3)};
  initialize(model, 1);
  convert(model, DType::f64);
  return model;
}

struct Case {
  std::string mesh, strategy;
};
const std::vector<Case> cases = {
    {"data=1", "serial"},
    {"data=1", "accumulate(micro=2)"},
    {"data=2", "data_parallel"},
    {"data=2", "zero(1)"},
    {"data=2", "zero(3)"},
    {"data=2", "central_storage"},
    {"pipe=2", "pipeline(micro=2, partition=even)"},
    {"pipe=2,data=2", "pipeline(micro=2, partition=even) | zero(1)"},
};
bool runs(const Case& c) {
  const int ranks = ranks_of(parse_mesh(c.mesh));
  return !under_mpi() || ranks == processes().size();
}

}  // namespace

TEST_CASE("the loss scale doubles after so many good steps and halves on an overflow, which starts the count again") {
  LossScale scale(1024);
  CHECK(scale.on());
  CHECK_FALSE(LossScale().on());
  CHECK(LossScale().value() == 1);
  for (int i = 1; i <= 4000; ++i) {
    CHECK(scale.see(true));
    CHECK(scale.value() == (i < 2000 ? 1024 : i < 4000 ? 2048 : 4096));
  }
  for (int i = 1; i < 2000; ++i) (void)scale.see(true);
  CHECK(scale.state() == LossScaleState{4096, 1999});
  CHECK_FALSE(scale.see(false));
  CHECK(scale.state() == LossScaleState{2048, 0});
  for (int i = 1; i < 2000; ++i) (void)scale.see(true);
  CHECK(scale.value() == 2048);
  (void)scale.see(true);
  CHECK(scale.value() == 4096);
  for (int i = 0; i < 40; ++i) (void)scale.see(false);
  CHECK(scale.value() == 1);
  for (int i = 0; i < 40 * 2000; ++i) (void)scale.see(true);
  CHECK(scale.value() == 0x1p24);
}

TEST_CASE("a scaled loss trains as an unscaled one, clipping included") {
  for (const Case& c : cases)
    for (const double clip : {0.0, 0.05}) {
      if (!runs(c)) continue;
      INFO(c.mesh << " " << c.strategy << ", clip " << clip);
      const auto trained = [&](double loss_scale) {
        return on_ranks(ranks_of(parse_mesh(c.mesh)), [&](World& world) {
          Mesh mesh(world, parse_mesh(c.mesh));
          Step step(mlp(), mse_loss, Sgd{.lr = 0.1, .momentum = 0.9}, mesh, parse_strategy(c.strategy),
                    {.optimizer = {.clip_norm = clip}, .loss_scale = loss_scale});
          const auto [begin, end] = share(8, step.shard().rank, step.shard().size);
          for (int i = 0; i < 5; ++i)
            step(rows_of(8, 1 + i, -0.5).to(DType::f64).rows(begin, end),
                 Tensor::full({end - begin, 3}, 0.3, DType::f64));
          StepProbe(step).consolidate();
          return outcome(world, {}, step.parameters()).weights;
        });
      };
      CHECK(distance(trained(1024), trained(0)) < 1e-12);
    }
}

TEST_CASE("a step that overflows counts, changes nothing and halves the scale, on every rank alike") {
  for (const Case& c : cases) {
    if (!runs(c) || c.mesh.find("pipe") != std::string::npos) continue;  // one part: no stages
    INFO(c.mesh << " " << c.strategy);
    const auto faults = on_ranks(ranks_of(parse_mesh(c.mesh)), [&](World& world) {
      Mesh mesh(world, parse_mesh(c.mesh));
      Module model = Halves();
      initialize(model, 1);
      Step step(model, sum_loss, Sgd{.lr = 0.1, .momentum = 0.9}, mesh, parse_strategy(c.strategy),
                {.loss_scale = 0x1p100});
      std::vector<std::string> all;
      const auto expect = [&](const std::string& what, bool good) {
        const Tensor mine = Tensor::full({1}, good ? 1 : 0, DType::i64);
        world.comm().all_reduce(mine, ReduceOp::min).wait();
        if (mine.item() == 0) all.push_back(what);
      };
      const auto state = [&] {
        StepProbe(step).consolidate();
        auto numbers = step.parameters().values().to_vector();
        for (auto& [name, flat] : step.optimizer().state())
          for (double v : flat.to_vector()) numbers.push_back(v);
        return numbers;
      };
      const Index rows = 4 / step.shard().size;
      const auto train = [&](double large) { step(rows_of(rows, large, 1), Tensor::zeros({rows, 1})); };
      train(1);
      expect("a good step is one",
             step.optimizer().steps() == 1 && StepResume(step).loss_scale() == LossScaleState{0x1p100, 1});
      const auto before = state();
      double want = 0x1p100;
      for (int i = 0; i < 3; ++i) {
        train(0x1p40);  // only the gradient of the first half leaves f32
        want /= 2;
        expect(fmt::format("overflow {}: steps {}, scale {}", i, step.optimizer().steps(),
                           StepResume(step).loss_scale().scale),
               step.optimizer().steps() == 2 + i && StepResume(step).loss_scale() == LossScaleState{want, 0});
      }
      expect("weights and momentum are untouched", state() == before);
      train(1);
      expect("the next good step trains",
             state() != before && StepResume(step).loss_scale() == LossScaleState{want, 1});
      return all;
    });
    CHECK(faults == std::vector<std::string>{});
  }
}

TEST_CASE("an overflow in one stage of a pipeline refuses the step in all") {
  for (int ranks : rank_counts({2})) {
    if (ranks != 2) {
      SUCCEED("for two ranks");
      continue;
    }
    const auto good = on_ranks(ranks, [&](World& world) {
      Mesh mesh(world, {{"pipe", 2}});
      Module model = Sequential{Linear(2, 4), Linear(4, 4), [](const Tensor& x) { return scale(x, 1e-30); }};
      initialize(model, 1);
      Step step(model, sum_loss, Sgd{.lr = 0.1}, mesh, pipeline({.micro = 1, .partition = "1"}),
                {.loss_scale = 0x1p120});
      const auto before = step.parameters().values().to_vector();
      step(rows_of(4, 1e37, 1e37), Tensor::zeros({4, 1}));
      StepProbe(step).consolidate();
      const bool same = step.parameters().values().to_vector() == before;
      const Tensor scale = Tensor::full({1}, StepResume(step).loss_scale().scale, DType::f64);
      return same && step.optimizer().steps() == 1 && agree(world, scale) &&
             StepResume(step).loss_scale().scale == 0x1p119;
    });
    CHECK(good);
  }
}

TEST_CASE("with both numbers of its state loss scaling goes on as if it had not stopped") {
  World world;
  const auto make = [&] {
    Module model = Halves();
    initialize(model, 1);
    return std::make_unique<Step>(model, sum_loss, Sgd{.lr = 0.1}, world, Strategy(), StepOptions{.loss_scale = 8});
  };
  const auto train = [](Step& step) { step(rows_of(2, 1, 1), Tensor::zeros({2, 1})); };
  auto whole = make();
  StepResume(*whole).set_loss_scale({.scale = 16, .good_steps = LossScale::period - 5});
  for (int i = 0; i < 3; ++i) train(*whole);
  const LossScaleState saved = StepResume(*whole).loss_scale();
  CHECK(saved == LossScaleState{16, LossScale::period - 2});
  for (int i = 0; i < 3; ++i) train(*whole);
  auto resumed = make();
  StepResume(*resumed).set_loss_scale(saved);
  for (int i = 0; i < 3; ++i) train(*resumed);
  CHECK(StepResume(*whole).loss_scale() == LossScaleState{32, 1});
  CHECK(StepResume(*resumed).loss_scale() == StepResume(*whole).loss_scale());
  CHECK_ERROR(StepResume(*resumed).set_loss_scale({.scale = 0.5}), usage, "step", 1);
  CHECK_ERROR(StepResume(*resumed).set_loss_scale({.scale = 2, .good_steps = LossScale::period}), usage, 2, 2000, 1999);
  Step off(mlp(), mse_loss, Sgd{}, world);
  StepResume(off).set_loss_scale({.scale = 64});
  CHECK(StepResume(off).loss_scale() == LossScaleState{1, 0});
}

}  // namespace test_loss_scale
