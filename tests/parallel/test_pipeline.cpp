// Pipelines and gradient accumulation, alone and with data parallelism, against the serial run in the same
// micro-batches. Run it under mpiexec for MPI; without, ranks are threads.
#include "framework/layers/recompute.h"
#include "parallel/model/chain.h"
#include "parallel/runtime/step_probe.h"
#include "parallel/strategies/schedules.h"
#include "tests/parallel/training.h"

namespace test_pipeline {

using namespace trireme;
using namespace trireme::test;

namespace {

/// The form of the MNIST CNN: 6 parts.
Sequential small_cnn() {
  return {Conv2d(1, 2, 3), relu, Conv2d(2, 3, 3), relu,        MaxPool(2), Dropout(0.25), flatten,
          Linear(3, 8),    relu, Dropout(0.5),    Linear(8, 5)};
}
/// 9 parts.
Sequential small_mlp() {
  Sequential model{flatten, Linear(36, 6), relu};
  for (int i = 0; i < 6; ++i) model.add(Linear(6, 6)).add(relu);
  return model.add(Linear(6, 5));
}
Conv2d conv3(Index in, Index out, Index stride = 1) {
  return {in, out, 3, {.stride = stride, .pad = 1, .bias = false}};
}
/// Two residual blocks whose layers are parts of their own, so that a cut may fall inside one, and inside a row in a
/// row: 13 parts.
Sequential small_resnet() {
  const Sequential first{Stash{"a"}, conv3(3, 3), BatchNorm(3), relu, conv3(3, 3), BatchNorm(3), AddStashed("a"), relu};
  const Sequential shortcut{Conv2d(3, 4, 1, {.stride = 2, .bias = false}), BatchNorm(4)};
  return {conv3(1, 3),
          BatchNorm(3),
          relu,
          first,
          Stash{"a"},
          conv3(3, 4, 2),
          BatchNorm(4),
          relu,
          conv3(4, 4),
          BatchNorm(4),
          AddStashed("a", shortcut),
          relu,
          flatten,
          Linear(36, 5)};
}

struct Model {
  const char* name;
  std::function<Module()> make;
  int parts;
};
const std::vector<Model> models = {{"cnn", small_cnn, 6}, {"resnet", small_resnet, 13}, {"mlp", small_mlp, 9}};

/// 20 steps, briefly 5; every fourth batch has one row.
Setup setup_of(const Model& model) {
  return {.model = model.make,
          .optimizer_config = Sgd{.lr = 0.05, .momentum = 0.9},
          .samples = 37,
          .batch = 12,
          .steps = brief() ? 5 : 20,
          .shape = {6, 6, 1}};
}

std::vector<PipelineOptions> schedules_of(int micro) {
  std::vector<PipelineOptions> all;
  for (const PipelineSchedule& s : schedules())
    all.push_back({.micro = micro, .schedule = s.name, .chunks = s.interleaves || s.folds ? 2 : 1});
  return all;
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) { return told(e); }
  return "";
}
Strategy hybrid(const PipelineOptions& o, bool overlap = true) {
  return pipeline(o) | data_parallel({.first_bucket = 16, .bucket = 40, .overlap = overlap});
}

}  // namespace

TEST_CASE("every schedule on any number of stages trains what serial accumulation does", "[table]") {
  for (auto& model : models) {
    const Setup s = setup_of(model);
    for (int microbatch : {4, 6}) {
      if (under_mpi() && (microbatch == 6) != (processes().size() == 3)) continue;
      const auto reference = serial_run(s, accumulate(microbatch));
      for (int ranks : rank_counts({2, 3, 4, 8}))
        for (auto& o : schedules_of(microbatch)) {
          if (ranks * o.chunks > model.parts || (o.chunks > 1 && microbatch % ranks != 0)) continue;
          INFO(model.name << ", " << o.schedule << ", " << ranks << " stages, " << microbatch << " micro-batches");
          check_close(parallel_run(s, {{"pipe", ranks}}, pipeline(o)), reference, 1e-11);
        }
    }
  }
}

TEST_CASE("pipelines with data parallelism train what serial accumulation does, batch norm over the data axis",
          "[table][device]") {
  if (processes().size() != 4 && processes().size() != 8 && threads_only("meshes of 4 and 8 ranks")) return;
  for (auto& model : models) {
    Setup s = setup_of(model);
    s.samples = 41;
    s.batch = 20;
    const auto reference = serial_run(s, accumulate(4));
    for (auto [data, pipe] : {std::pair{2, 2}, {2, 4}, {4, 2}})
      for (auto& o : schedules_of(4)) {
        if (other_ranks(data * pipe)) continue;
        if (pipe * o.chunks > model.parts) continue;
        INFO(model.name << ", " << o.schedule << ", data " << data << ", pipe " << pipe);
        check_close(parallel_run(s, {{"data", data}, {"pipe", pipe}}, hybrid(o)), reference, 1e-11);
      }
  }
}

TEST_CASE("the order of a mesh's axes, and when gradients are reduced, change nothing") {
  if (processes().size() != 4 && threads_only("not with 4 processes")) return;
  const Setup s = setup_of(models[1]);
  const auto reference = serial_run(s, accumulate(4));
  for (auto& o : schedules_of(4)) {
    check_close(parallel_run(s, {{"pipe", 2}, {"data", 2}}, hybrid(o)), reference, 1e-11);
    check_close(parallel_run(s, {{"data", 2}, {"pipe", 2}}, hybrid(o, false)), reference, 1e-11);
  }
}

TEST_CASE("accumulation with data parallelism trains what serial accumulation does", "[table]") {
  for (auto& model : models)
    for (int ranks : rank_counts({2, 3}))
      for (bool overlap : {true, false}) {
        const Setup s = setup_of(model);
        INFO(model.name << " on " << ranks << " ranks, overlap " << overlap);
        check_close(parallel_run(s, ranks,
                                 accumulate(3) | data_parallel({.first_bucket = 16, .bucket = 40, .overlap = overlap})),
                    serial_run(s, accumulate(3)), 1e-11);
      }
}

TEST_CASE("without batch norm accumulation is serial, ignored labels included") {
  for (auto make : {small_cnn, small_mlp}) {
    Setup s = setup_of(models[0]);
    s.model = make;
    s.loss = cross_entropy_with({.ignore_index = 2});
    const auto reference = serial_run(s);
    for (int microbatch : {1, 2, 5, 12}) check_close(serial_run(s, accumulate(microbatch)), reference, 1e-11);
    for (int ranks : rank_counts({2, 3}))
      check_close(parallel_run(s, {{"pipe", ranks}}, pipeline({.micro = 5})), reference, 1e-11);
  }
}

TEST_CASE("on integers pipelines equal serial bit by bit", "[table][device]") {
  Setup s{.model =
              [] {
                return with_integers(Sequential{Conv2d(1, 4, 3), relu, Conv2d(4, 4, 1), relu, MaxPool(2), flatten,
                                                Linear(64, 4), relu, Linear(4, 5)});
              },
          .loss = pattern_loss,
          .optimizer_config = Sgd{.lr = 0.125},
          .dtype = DType::f64,
          .samples = 24,
          .batch = 8,
          .steps = 2,
          .integers = true};
  const auto reference = serial_run(s);
  for (double w : reference.weights)
    REQUIRE((std::abs(w) < 1 << 20 && std::ldexp(w, 20) == std::round(std::ldexp(w, 20))));
  check_same_bits(serial_run(s, accumulate(4)), reference);
  for (int ranks : rank_counts({2, 3, 4, 5}))
    for (auto& o : schedules_of(4)) {
      if (ranks * o.chunks > 5 || (o.chunks > 1 && 4 % ranks != 0)) continue;
      INFO(o.schedule << ", " << ranks << " stages");
      check_same_bits(parallel_run(s, {{"pipe", ranks}}, pipeline(o)), reference);
    }
  if (!under_mpi() || processes().size() == 4)
    check_same_bits(parallel_run(s, {{"data", 2}, {"pipe", 2}}, hybrid({.micro = 4})), reference);
}

TEST_CASE("running statistics of several micro-batches are those of the mini-batch") {
  // What a first batch norm is given does not depend on how the batch is cut.
  Setup s = setup_of(models[1]);
  s.model = [] { return Sequential{conv3(1, 3), BatchNorm(3), relu, flatten, Linear(108, 8), Linear(8, 5)}; };
  s.steps = 1;
  const auto reference = serial_run(s);
  for (int microbatch : {2, 5, 12})
    CHECK(distance(serial_run(s, accumulate(microbatch)).buffers, reference.buffers) < 1e-13);
  s.steps = 4;  // the fourth batch has one row
  for (int ranks : rank_counts({2}))
    CHECK(distance(parallel_run(s, {{"pipe", ranks}}, pipeline({.micro = 5})).buffers,
                   serial_run(s, accumulate(5)).buffers) < 1e-13);
}

TEST_CASE("parts that run again in backward train the same under every schedule") {
  auto block = [](bool again) {
    const Sequential layers{conv3(2, 2), BatchNorm(2), relu, conv3(2, 2), BatchNorm(2)};
    return again ? Module(Recompute(layers)) : Module(layers);
  };
  auto model = [&](bool again) {
    return Sequential{conv3(1, 2), block(again), Dropout(0.3), block(again), flatten, Linear(72, 5)};
  };
  Setup s = setup_of(models[1]);
  s.model = [&] { return model(false); };
  const auto reference = serial_run(s, accumulate(4));
  s.model = [&] { return model(true); };
  for (int ranks : rank_counts({2}))
    for (auto& o : schedules_of(4))
      if (ranks * o.chunks <= 6 && (o.chunks == 1 || 4 % ranks == 0))
        check_close(parallel_run(s, {{"pipe", ranks}}, pipeline(o)), reference, 1e-11);
}

TEST_CASE("rows within a row are cut too, unless they stash under a name in use around them") {
  auto names = [](Module model) {
    std::string text;
    const Chain chain(model);
    for (auto& part : chain.parts(Parameters(model))) text += (text.empty() ? "" : " ") + part.name;
    return text;
  };
  CHECK(names(small_resnet()) == "0-2 3.0 3.1-3 3.4-5 3.6 3.7 4 5-7 8-9 10 11 12 13");
  CHECK(names(Sequential{flatten, Sequential{Sequential{Linear(4, 4), relu}, Linear(4, 4)}}) == "0 1.0.0-1 1.1");
  auto nested = [](const char* name) {
    return Sequential{flatten,
                      Linear(36, 6),
                      Stash{"a"},
                      Linear(6, 6),
                      Sequential{Stash{name}, Linear(6, 6), relu, AddStashed(name)},
                      AddStashed("a"),
                      Linear(6, 5)};
  };
  CHECK(names(nested("a")) == "0 1 2 3 4 5 6");
  CHECK(names(nested("b")) == "0 1 2 3 4.0 4.1-2 4.3 5 6");
  for (const char* name : {"a", "b"}) {
    Setup s = setup_of(models[2]);
    s.model = [&] { return nested(name); };
    const auto reference = serial_run(s);
    for (int ranks : rank_counts({3, 7}))
      check_close(parallel_run(s, {{"pipe", ranks}}, pipeline({.partition = "even"})), reference, 1e-11);
  }
}

TEST_CASE("no more micro-batches are in flight than the schedule says") {
  struct Held {
    std::vector<double> most, allowed;
  };
  for (int ranks : rank_counts({2, 4}))
    for (auto& o : schedules_of(12)) {
      if (ranks * o.chunks > 9) continue;
      const Held held = on_ranks(ranks, [&](World& world) {
        Module model = small_mlp();
        Mesh mesh(world, {{"pipe", ranks}});
        Step step(model, cross_entropy, Sgd{}, mesh, pipeline(o));
        step(Tensor::zeros({16, 6, 6, 1}), Tensor::zeros({16}, DType::i64));
        const Tensor most = Tensor::zeros({ranks}, DType::i64);
        most.data<std::int64_t>()[world.rank()] = StepProbe(step).most_in_flight();
        world.comm().all_reduce(most).wait();
        Held h{most.to_vector(), {}};
        for (auto& program : step.plan().programs) h.allowed.push_back(program.in_flight);
        return h;
      });
      INFO(o.schedule << " on " << ranks);
      CHECK(held.most == held.allowed);
      if (o.schedule == "1f1b")
        for (int r = 0; r < ranks; ++r) CHECK(held.most[r] == ranks - r);
    }
}

TEST_CASE("weights read into a Step before it runs are those it trains") {
  auto trained = [](World& world, std::vector<Axis> axes, const Strategy& strategy) {
    Mesh mesh(world, std::move(axes));
    Step step(small_mlp(), cross_entropy, Sgd{.lr = 0.1}, mesh, strategy);
    if (world.main())
      for (auto& e : step.parameters().entries()) uniform(e.tensor, -0.3, 0.3, key_of_name(e.name));
    broadcast_state(step.parameters(), world);
    step(Tensor::full({8, 6, 6, 1}, 0.5), Tensor::full({8}, 2, DType::i64));
    StepProbe(step).consolidate();
    return outcome(world, {}, step.parameters());
  };
  World one;
  for (int ranks : rank_counts({2, 3}))
    check_close(on_ranks(ranks,
                         [&](World& world) {
                           return trained(world, {{"pipe", ranks}}, pipeline({.partition = "even"}));
                         }),
                trained(one, {}, accumulate(4)), 1e-5);
}

TEST_CASE("the state of every optimizer comes together again") {
  int ranks = rank_counts({3})[0];
  for (auto& optimizer_config :
       {OptimizerConfig(AdamW{}), OptimizerConfig(Lars{.lr = 0.1}), OptimizerConfig(Adadelta{})}) {
    auto states = [&](World& world, std::vector<Axis> axes, const Strategy& strategy) {
      Module model = small_cnn();
      initialize(model, 1);
      convert(model, DType::f64);
      Mesh mesh(world, std::move(axes));
      Step step(model, cross_entropy, optimizer_config, mesh, strategy);
      for (int i = 0; i < 3; ++i) {
        std::vector<double> pixels, labels;
        for (std::uint64_t k = 0; k < 8 * 36; ++k) pixels.push_back(static_cast<double>(mix(k + i) % 100) / 50 - 1);
        for (int k = 0; k < 8; ++k) labels.push_back(k % 5);
        step(Tensor::of(pixels, {8, 6, 6, 1}, DType::f64), Tensor::of(labels, {8}, DType::i64));
      }
      StepProbe(step).consolidate();
      Outcome o = outcome(world, {}, step.parameters());
      for (auto& [name, state] : step.optimizer().state()) {
        o.agreed = agree(world, state.blocks()[0]) && o.agreed;
        for (double v : state.to_vector()) o.first.push_back(v);
      }
      return o;
    };
    World one;
    check_close(on_ranks(ranks,
                         [&](World& world) {
                           return states(world, {{"pipe", ranks}}, pipeline());
                         }),
                states(one, {}, accumulate(4)), 1e-11);
  }
}

TEST_CASE("gradients are clipped by the norm of all stages' together") {
  Setup s = setup_of(models[2]);
  s.optimizer = {.clip_norm = 0.05};
  const auto reference = serial_run(s, accumulate(4));
  s.optimizer = {};
  CHECK(distance(serial_run(s, accumulate(4)).weights, reference.weights) > 1e-3);
  s.optimizer = {.clip_norm = 0.05};
  for (int ranks : rank_counts({2, 3})) check_close(parallel_run(s, {{"pipe", ranks}}, pipeline()), reference, 1e-11);
  // The last stage has all weights.
  s.model = [] { return Sequential{neg, MaxPool(2), flatten, Linear(9, 5)}; };  // for 4 ranks under MPI
  const auto last = serial_run(s, accumulate(4));
  for (int ranks : rank_counts({2, 3}))
    check_close(parallel_run(s, {{"pipe", ranks}}, pipeline({.partition = "even"})), last, 1e-11);
}

TEST_CASE("stages cut by measured costs train the same") {
  int ranks = rank_counts({2})[0];
  auto run = [&](World& world, const Tensor& example) {
    Module model = small_resnet();
    initialize(model, 1);
    Mesh mesh(world, {{"pipe", world.size()}});
    Step step(model, cross_entropy, Sgd{.lr = 0.1}, mesh, pipeline(), {.profile = {.example = example}});
    const double loss = step(Tensor::full({8, 6, 6, 1}, 0.5), Tensor::zeros({8}, DType::i64)).item();
    check((step.plan().parts[0].cost.forward > 0) == bool(example), "test", "costs are measured on an example alone");
    StepProbe(step).consolidate();
    return outcome(world, {loss}, step.parameters());
  };
  const auto measured = on_ranks(ranks, [&](World& world) { return run(world, Tensor::full({2, 6, 6, 1}, 0.5)); });
  check_same_bits(measured, on_ranks(ranks, [&](World& world) { return run(world, {}); }));
}

TEST_CASE("a loss that is not finite is refused on every stage") {
  int ranks = rank_counts({2})[0];
  const auto error = on_ranks(ranks, [&](World& world) {
    Module model = Sequential{flatten,      Linear(36, 6),      Stash{"skip"},
                              Linear(6, 6), AddStashed("skip"), Linear(6, 5)};  // a ReLU may turn NaN into 0
    initialize(model, 1);
    Mesh mesh(world, {{"pipe", world.size()}});
    Step step(model, cross_entropy, Sgd{}, mesh, pipeline());
    const Tensor good = Tensor::zeros({8, 6, 6, 1}), bad = Tensor::full({8, 6, 6, 1}, NAN),
                 labels = Tensor::zeros({8}, DType::i64);
    step(good, labels);
    StepProbe(step).consolidate();
    const auto weights = step.parameters().values().to_vector();
    const std::string text = error_of([&] { step(bad, labels); });
    const bool kept = step.parameters().values().to_vector() == weights;
    step(good, labels);  // nothing of the refused step is left
    return text + (kept ? "; weights kept" : "; weights changed");
  });
  CHECK_THAT(error, contains("nan") && contains("weights kept"));
}

TEST_CASE("what a pipeline cannot be is said in one line") {
  auto refused = [](std::vector<Axis> axes, const Strategy& strategy, Sequential (*model)()) {
    return error_of([&] {
      World::threads(ranks_of(axes), [&](World& world) {
        Mesh mesh(world, axes);
        Step step(model(), cross_entropy, Sgd{}, mesh, strategy);
      });
    });
  };
  const auto three = [] { return Sequential{flatten, Linear(36, 6), relu, Linear(6, 5)}; };
  CHECK_THAT(refused({{"pipe", 4}}, pipeline(), three), mentions("usage", 4, 3));
  CHECK_THAT(refused({{"pipe", 2}}, pipeline(), [] { return Sequential{Linear(6, 5)}; }),
             mentions("usage", 2, 1, "Sequential"));
  CHECK_THAT(refused({{"pipe", 2}}, pipeline({.micro = 3, .schedule = "interleaved", .chunks = 2}), small_mlp),
             mentions("usage", 2, 3, "micro=4"));
  CHECK_THAT(refused({{"pipe", 2}, {"data", 2}}, pipeline(), three), mentions("usage", 2, "data_parallel"));
  CHECK_THAT(refused({{"pipe", 2}, {"depth", 2}}, pipeline(), three), mentions("usage", "depth", 2, "pipeline"));
  CHECK_THAT(refused({{"data", 2}}, pipeline(), three), mentions("usage", "data_parallel"));
  CHECK(refused({{"pipe", 2}, {"data", 2}}, data_parallel() | pipeline(), three).empty());  // `|` sorts
  CHECK_THAT(error_of([] { parse_strategy("pipeline(schedule=1f2b)"); }),
             mentions("usage", "1f2b", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v"));
  CHECK_THAT(error_of([] { pipeline({.chunks = 2}); }), mentions("usage", "interleaved"));
  CHECK_THAT(error_of([] { parse_strategy("pipeline(micro=0)"); }), mentions("usage", "micro", 0, 1));
  const auto tied = [] {
    const BatchNorm same(6);
    return Sequential{flatten, Linear(36, 6), same, relu, same, Linear(6, 5)};
  };
  CHECK_THAT(refused({{"pipe", 2}}, pipeline({.partition = "even"}), tied), mentions("usage", "buffer"));
  const auto drawn = [] {  // one layer, called twice for a batch
    const Module same = Dropout(0.5);
    return Sequential{flatten, Linear(36, 6), same, Linear(6, 6), same, Linear(6, 5)};
  };
  CHECK_THAT(refused({{"pipe", 2}}, pipeline({.partition = "even"}), drawn), mentions("usage", "random", 2, 4));
}

}  // namespace test_pipeline
