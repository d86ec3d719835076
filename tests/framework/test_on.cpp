// Layers placed by hand on several devices (cpu:1 and cpu:2 are devices of their own that share the host's cores), and
// optimizers that keep their state elsewhere.
#include "framework/io/checkpoint.h"
#include "framework/layers/on.h"
#include "parallel/runtime/step_probe.h"
#include "tests/parallel/training.h"
#include "tests/support/temporary.h"

namespace test_on {

using namespace trireme;
using namespace trireme::test;

namespace {

/// A skip from one device to another, batch norm, dropout, and layers without weights. `place` puts each part
/// somewhere.
template <class Place>
Module net(Place&& place) {
  Sequential features{Conv2d(1, 4, 3, {.pad = 1}), BatchNorm(4), relu};
  Sequential block{Conv2d(4, 4, 3, {.pad = 1}), BatchNorm(4), relu};
  Sequential head{MaxPool(2), Dropout(0.25), flatten, Linear(100, 7), relu, Linear(7, 5)};
  Sequential all;
  all.add("features", place(0, features)).add("keep", Stash{"x"}).add("block", place(1, block));
  return all.add("add", AddStashed("x")).add("head", place(2, head));
}
Module plain() {
  return net([](int, Module m) { return m; });
}
Module placed() {
  return net([](int i, Module m) { return Module(on(cpu(i), std::move(m))); });
}
Setup setup(std::function<Module()> model) {
  return {.model = std::move(model), .samples = 90, .batch = 12, .steps = brief() ? 9 : 20};
}

}  // namespace

TEST_CASE("a placed layer keeps its names, and its tensors lie on its device") {
  Module model = placed();
  Parameters p(model);
  std::vector<std::string> names, plain_names;
  for (auto& e : p.entries()) names.push_back(e.name);
  const Parameters unplaced(plain());
  for (auto& e : unplaced.entries()) plain_names.push_back(e.name);
  CHECK(names == plain_names);
  REQUIRE(p.values().blocks().size() == 3);
  for (int i = 0; i < 3; ++i) CHECK(p.values().blocks()[i].device() == cpu(i));
  CHECK(p.find("block.0.weight")->tensor.device() == cpu(1));
  CHECK(p.buffers().back().tensor.device() == cpu(1));
  CHECK(model(Tensor::full({2, 10, 10, 1}, 0.5)).device() == cpu(2));
  const Slice across{0, p.size()};
  CHECK(p.values().cut(across).size() == 3);
  CHECK_ERROR(p.values().rows(0, p.size()), usage, 0, "cpu:0", "cpu:2");
}

TEST_CASE("the innermost on() decides") {
  Sequential inner{Linear(4, 3), relu, on(cpu(1), Linear(3, 2))};
  Module outer = on(cpu(2), inner);
  Parameters p(outer);
  CHECK(p.find("0.weight")->tensor.device() == cpu(2));
  CHECK(p.find("2.weight")->tensor.device() == cpu(1));
  CHECK(outer(Tensor::full({1, 4}, 1)).device() == cpu(1));
}

TEST_CASE("several layers in one on() are a row") {
  Module model = Sequential{on(cpu(1), Linear(4, 3), relu, Linear(3, 2))};
  Parameters p(model);
  CHECK(p.entries()[2].name == "0.2.weight");
}

TEST_CASE("placed layers train the model that one device trains, bit by bit") {
  const OptimizerConfig recipes[] = {Sgd{.lr = 0.05, .momentum = 0.9}, Adam{.lr = 0.01}, Lars{.lr = 0.1}};
  for (const OptimizerConfig& optimizer_config : recipes)
    for (double clip : {0.0, 0.1}) {
      Setup one = setup(plain), three = setup(placed);
      for (Setup* s : {&one, &three}) {
        s->optimizer_config = optimizer_config;
        s->optimizer.clip_norm = clip;
        s->dtype = DType::f32;
      }
      const Outcome expected = serial_run(one), got = serial_run(three);
      if (clip == 0)
        check_same_bits(got, expected);
      else  // the norm is summed device by device
        check_close(got, expected, 1e-5);
      check_same_bits(serial_run(three, accumulate(3)), serial_run(one, accumulate(3)));
    }
}

TEST_CASE("placed layers under strategies") {
  const Setup one = setup(plain), three = setup(placed);
  const DataParallelOptions small{.first_bucket = 37, .bucket = 101};
  const Outcome alone = serial_run(one);
  for (int ranks : rank_counts({1, 2, 3}))
    for (const Strategy& strategy :
         {data_parallel(small), data_parallel(small) | zero(1), data_parallel(small) | zero(2),
          data_parallel(small) | zero(3), data_parallel(small) | central_storage()}) {
      INFO(strategy.name() << " on " << ranks);
      check_close(parallel_run(three, ranks, strategy), alone, 1e-11);
    }
  if (threads_only()) return;
  const Outcome microbatches = serial_run(one, accumulate(3));
  for (const char* schedule : {"1f1b", "zb-h1"})
    check_close(parallel_run(three, {{"pipe", 3}}, pipeline({.micro = 3, .schedule = schedule, .partition = "even"})),
                microbatches, 1e-11);
}

TEST_CASE("a checkpoint does not know where layers lie") {
  const Temporary folder;
  auto run = [&](Module model, int first, int last) {
    initialize(model, 3);
    World world;
    Step step(model, cross_entropy, Adam{.lr = 0.01}, world);
    if (first > 0) load_latest(folder.path(), step.parameters(), &step.optimizer());
    for (int i = first; i < last; ++i)
      step(Tensor::full({2, 10, 10, 1}, 0.1 * i), Tensor::of(std::vector<double>{1, 2}, {2}, DType::i64));
    if (first == 0) save_checkpoint(folder.path(), step.parameters(), step.optimizer(), {.step = last});
    return step.parameters().values().to_vector();
  };
  const auto straight = [&] {
    const Temporary other;
    Module model = plain();
    initialize(model, 3);
    World world;
    Step step(model, cross_entropy, Adam{.lr = 0.01}, world);
    for (int i = 0; i < 6; ++i)
      step(Tensor::full({2, 10, 10, 1}, 0.1 * i), Tensor::of(std::vector<double>{1, 2}, {2}, DType::i64));
    return step.parameters().values().to_vector();
  }();
  run(placed(), 0, 3);
  CHECK(run(plain(), 3, 6) == straight);
  run(plain(), 0, 3);
  CHECK(run(placed(), 3, 6) == straight);
}

TEST_CASE("an optimizer may keep its state on another device") {
  for (const OptimizerConfig& optimizer_config :
       {OptimizerConfig(Sgd{.lr = 0.05, .momentum = 0.9}), OptimizerConfig(Adam{.lr = 0.01})}) {
    Setup here = setup(placed), there = setup(placed);
    here.optimizer_config = there.optimizer_config = optimizer_config;
    there.optimizer.store = cpu(3);
    const Outcome expected = serial_run(here);
    check_same_bits(serial_run(there), expected);
    // Adam makes steps of what convolutions' biases in front of batch norms have, noise.
    for (int ranks : optimizer_config.name() == "sgd" ? rank_counts({2}) : std::vector<int>{})
      check_close(parallel_run(there, ranks, data_parallel() | zero(2)), expected, 1e-11);
  }
  Module model = plain();
  Parameters p(model);
  CHECK(Optimizer(p, Adam{}, {.store = cpu(3)}).state()[0].second.blocks()[0].device() == cpu(3));
}

TEST_CASE("central storage: rank 0 alone holds state, and saves the whole of it") {
  for (int ranks : rank_counts({2, 3})) {
    const auto held = on_ranks(ranks, [&](World& world) {
      Module model = plain();
      initialize(model, 1);
      Step step(model, cross_entropy, Adam{}, world, central_storage());
      const Tensor x = Tensor::full({2, 10, 10, 1}, 0.5), y = Tensor::zeros({2}, DType::i64);
      step(x, y);
      const Tensor sizes = Tensor::zeros({world.size()}, DType::i64);
      sizes.data<std::int64_t>()[world.rank()] = step.optimizer().state()[0].second.numel();
      world.comm().all_reduce(sizes).wait();
      auto held = sizes.to_vector();
      StepProbe(step).consolidate();
      double squares = 0;
      for (double v : step.optimizer().state()[1].second.to_vector()) squares += v;
      const Tensor all = Tensor::full({1}, squares, DType::f64);
      CHECK(agree(world, all));
      CHECK(squares > 0);
      step(x, y);
      held.push_back(static_cast<double>(step.parameters().size()));
      return held;
    });
    CHECK(held[0] == held.back());
    for (int r = 1; r < ranks; ++r) CHECK(held[r] == 0);
  }
}

TEST_CASE("what cannot be placed is said") {
  CHECK_ERROR(on(cpu(1), Module()), usage, "cpu:1");
  Sequential trained{Linear(2, 2)};
  Parameters p(trained);
  CHECK_ERROR(on(cpu(1), trained), usage, "0.weight");
  CHECK_ERROR(on(cuda(0), Linear(2, 2)), device, "cuda");
}

}  // namespace test_on
