// Step and Reducer: against the hand-written loop, and without a loader.
#include "parallel/runtime/reducer.h"
#include "parallel/runtime/step.h"
#include "parallel/runtime/step_flags.h"
#include "parallel/runtime/step_probe.h"

#include <cmath>
#include <optional>
#include <thread>

#include "framework/optim/averaged_weights.h"
#include "framework/tensor/create.h"
#include "parallel/comm/transport/threads.h"
#include "tests/parallel/step_models.h"
#include "tests/support/catch.h"

namespace test_step {

using namespace trireme;
using namespace trireme::test;

namespace {

/// A weight that this rank uses only when told to.
struct Sometimes {
  Linear always{4, 2}, rare{4, 2};
  bool use = true;
  Tensor operator()(const Tensor& x) const { return use ? always(x) + rare(x) : always(x); }
  void visit(const StateVisitor& v) {
    v("always", always);
    v("rare", rare);
  }
};

/// Hands its input's first column on, beside what two products make of it all. The second one counts in rows whose
/// first number is 1; or, where `use` says for all rows at hand, is used or is not.
struct Masked {
  Linear always, rare;
  Index in;
  std::optional<bool> use = {};
  Masked(Index in, Index out) : always(in, out - 1), rare(in, out - 1), in(in) {}
  Tensor operator()(const Tensor& x) const {
    const Tensor first = split(x, {1, in - 1}, 1)[0].detach();
    const Tensor y = use ? (*use ? always(x) + rare(x) : always(x)) : always(x) + rare(x) * first;
    return concat({first, y}, 1);
  }
  void visit(const StateVisitor& v) {
    v("always", always);
    v("rare", rare);
  }
};

}  // namespace

TEST_CASE("a step is the hand-written loop") {
  OptimizerConfig optimizer_config = Sgd{.lr = 0.1, .momentum = 0.9};
  auto by_step = on_ranks(1, [&](World& world) {
    Step step(small_model(), cross_entropy, optimizer_config, world);
    std::vector<double> losses;
    for (int i = 0; i < 6; ++i) losses.push_back(step(noise(8, i), labels(8)).item());
    return outcome(world, losses, step.parameters());
  });
  // On a rank, too: its kernels use its share of the threads, and the order of their sums goes by how many there are.
  auto by_hand = on_ranks(1, [&](World& world) {
    Module model = small_model();
    Parameters parameters(model);
    Optimizer optimizer(parameters, optimizer_config);
    std::vector<double> losses;
    for (int i = 0; i < 6; ++i) {
      StepScope pass({.batch = {.step = static_cast<std::uint64_t>(i), .global_batch = 8}});
      Tensor loss = cross_entropy(model(noise(8, i)), labels(8));
      losses.push_back(loss.item());
      loss.backward();
      optimizer.step();
    }
    return outcome(world, losses, parameters);
  });
  CHECK(by_hand.losses == by_step.losses);
  CHECK(by_hand.weights == by_step.weights);
}

TEST_CASE("averaged weights are those of a step's, or refused where other ranks hold some") {
  if (threads_only()) return;
  const auto average = [](const std::string& how, int ranks, bool gather) {
    return on_ranks(ranks, [&](World& world) {
      Mesh mesh(world, {{how.starts_with("pipeline") ? "pipe" : "data", ranks}});
      Module m = convert(Sequential{Linear(3, 4), relu, Linear(4, 4), relu, Linear(4, 2)}, DType::f64);
      initialize(m, 3);
      Step step(m, mse_loss, Sgd{.lr = 0.5}, mesh, parse_strategy(how));
      AveragedWeights average(step.parameters(), 0.5);
      const Tensor x = normal({6, 3}, 0, 1, 1, DType::f64), y = normal({6, 2}, 0, 1, 2, DType::f64);
      Loader loader(TensorDataset(x, y), {.batch = 6, .shard = step.shard()});
      for (int i = 0; i < 4; ++i)
        for (auto& [a, b] : loader) {
          step(a, b);
          if (gather) step.gather_weights();
          average.update();
        }
      return Outcome{{}, average.store().values().to_vector(), {}};
    });
  };
  const auto serial = average("serial", 1, false);
  CHECK(distance(average("data_parallel", 2, false).weights, serial.weights) < 1e-12);
  for (const std::string how : {"zero(2)", "zero(3)", "pipeline(micro=1, partition=even)"}) {
    INFO(how);
    CHECK_ERROR(average(how, 2, false), usage, "gather_weights");
    CHECK(distance(average(how, 2, true).weights, serial.weights) < 1e-12);
  }
}

TEST_CASE("a flag that one rank raises is told to all behind the same step") {
  for (const int ranks : rank_counts({1, 2, 3}))
    for (const std::string name : {"data_parallel", "zero(2)", "pipeline(micro=2, partition=even)"})
      for (const int every : {1, 3})
        for (const double scale : {0.0, 1.0}) {  // with scaling gradients are looked at in each step, and flags, too
          const int period = scale > 0 ? 1 : every;
          INFO(name << ", " << ranks << " ranks, every " << every << " steps, loss scale " << scale);
          CHECK(on_ranks(ranks, [&](World& world) {
            const Strategy strategy = ranks > 1 ? parse_strategy(name) : Strategy();
            Mesh mesh(world, {{name.starts_with("pipeline") ? "pipe" : "data", ranks}});
            Step step(small_model(), cross_entropy, Sgd{.lr = 0.1}, mesh, strategy,
                      {.loss_scale = scale, .flags = {.names = {"stop", "save"}, .every = every}});
            bool right = !StepFlags(step).raised("stop");
            for (int raiser = 0; raiser < ranks; ++raiser)
              for (int turn = 0; turn < 3; ++turn) {  // stop, save, neither
                const auto at = step.optimizer().steps();
                if (world.rank() == raiser && turn == 0) {
                  StepFlags(step).raise("stop");
                  StepFlags(step).raise("stop");
                }
                if (world.rank() == (raiser + 1) % ranks && turn == 1) StepFlags(step).raise("save");
                for (auto t = at; t < at + period; ++t) {
                  (void)step(noise(8, t), labels(8));
                  right = right && StepFlags(step).raised("stop") == (turn == 0 && t % period == 0);
                  right = right && StepFlags(step).raised("save") == (turn == 1 && t % period == 0) &&
                          !StepFlags(step).raised("else");
                }
              }
            const Tensor all = Tensor::full({1}, right ? 1 : 0, DType::i64);
            world.comm().all_reduce(all, ReduceOp::min).wait();
            return all.item() == 1;
          }));
        }
}

TEST_CASE("flags are named before they are raised, and cost a message only where there is none") {
  World alone;
  Step step(small_model(), cross_entropy, Sgd{}, alone, {}, {.flags = {.names = {"stop"}}});
  CHECK_ERROR(StepFlags(step).raise("end"), usage, "end", "StepOptions::flags");
  for (const int ranks : rank_counts({2})) {
    const auto calls = [&](const StepOptions& options) {
      return on_ranks(ranks, [&](World& world) {
        Step step(small_model(), cross_entropy, Sgd{.lr = 0.1}, world, data_parallel(), options);
        std::vector<Index> all;
        for (int i = 0; i < 3; ++i) {
          (void)step(noise(8, i), labels(8));
          all.push_back(StepProbe(step).traffic().counted["data"].calls);
        }
        return all;
      });
    };
    const auto plain = calls({}), scaled = calls({.loss_scale = 2});
    CHECK(calls({.flags = {.names = {"stop"}, .every = 64}}) == plain);
    CHECK(calls({.loss_scale = 2, .flags = {.names = {"stop", "save"}}}) == scaled);
    CHECK(calls({.flags = {.names = {"stop", "save"}, .every = 2}}) ==
          std::vector{plain[0] + 1, plain[1], plain[2] + 1});
    CHECK(scaled == std::vector{plain[0], plain[1] + 1, plain[2] + 1});
  }
}

TEST_CASE("a hand-written loop with a Reducer is a step, bit by bit") {
  OptimizerConfig optimizer_config = Sgd{.lr = 0.1, .momentum = 0.9};
  for (int ranks : rank_counts({1, 2, 3}))
    for (bool overlap : {true, false}) {
      auto loop = on_ranks(ranks, [&](World& world) {
        Module model = small_model(1 + world.rank());
        Parameters parameters(model);
        Optimizer optimizer(parameters, optimizer_config);
        broadcast_state(parameters, world);
        Reducer reducer(parameters, world, {.first_bucket = 30, .bucket = 200, .overlap = overlap});
        std::vector<double> losses;
        auto [begin, end] = own_rows(world, 8);
        for (int i = 0; i < 6; ++i) {
          Tensor ids = Tensor::empty({end - begin}, DType::i64);
          for (Index k = begin; k < end; ++k) ids.data<std::int64_t>()[k - begin] = k;
          StepScope pass({.batch = {.step = static_cast<std::uint64_t>(i), .samples = ids, .global_batch = 8}});
          Tensor loss = cross_entropy(model(noise(8, i).rows(begin, end)), labels(8).rows(begin, end)),
                 total = loss.clone();
          world.comm().all_reduce(total).wait();
          losses.push_back(total.item());
          loss.backward();
          reducer.finish();
          optimizer.step();
        }
        return outcome(world, losses, parameters);
      });
      auto by_step = on_ranks(ranks, [&](World& world) {
        Step step(small_model(), cross_entropy, optimizer_config, world,
                  data_parallel({.first_bucket = 30, .bucket = 200}));
        std::vector<double> losses;
        auto [begin, end] = own_rows(world, 8);
        for (int i = 0; i < 6; ++i)
          losses.push_back(step(noise(8, i).rows(begin, end), labels(8).rows(begin, end)).item());
        return outcome(world, losses, step.parameters());
      });
      INFO(ranks << " ranks, overlap " << overlap);
      CHECK(loop.agreed);
      CHECK(loop.losses == by_step.losses);
      CHECK(loop.weights == by_step.weights);
    }
}

TEST_CASE("without a loader the rows of all ranks are the batch, in rank order") {
  auto run = [](World& world, std::vector<Index> counts) {
    Module model = small_model();
    convert(model, DType::f64);
    Step step(model, cross_entropy, Adam{.lr = 0.01}, world, {}, {.seed = 9});
    Index first = 0;
    for (int r = 0; r < world.rank(); ++r) first += counts[r % counts.size()];
    Index mine = counts[world.rank() % counts.size()];
    std::vector<double> losses;
    for (int i = 0; i < 5; ++i)
      losses.push_back(step(noise(mine, i, first).to(DType::f64), labels(mine, first)).item());
    return outcome(world, losses, step.parameters());
  };
  for (int ranks : rank_counts({2, 3, 4})) {
    std::vector<Index> counts = {5, 0, 2};
    Index total = 0;
    for (int r = 0; r < ranks; ++r) total += counts[r % 3];
    World one;
    auto reference = run(one, {total});
    auto parallel = on_ranks(ranks, [&](World& world) { return run(world, counts); });
    INFO(ranks << " ranks");
    CHECK(parallel.agreed);
    CHECK(distance(parallel.losses, reference.losses) < 1e-12);
    CHECK(distance(parallel.weights, reference.weights) < 1e-12);
  }
}

TEST_CASE("weights that a rank does not use count as zero there") {
  // Rank r's two rows say by their first number whether r uses the weight.
  const auto uses = [](int rank) { return rank % 2 == 1; };  // rank 0 never does
  const auto batch = [&](int first, int count) {
    std::vector<double> x, y;
    for (int r = first; r < first + count; ++r)
      for (int i = 0; i < 2; ++i) {
        x.push_back(uses(r));
        for (int k = 1; k < 4; ++k) x.push_back(0.3 * r + 0.2 * i - 0.1 * k);
        y.insert(y.end(), {0.0, 0.5, -0.25 * r});
      }
    return std::pair(Tensor::of(x, {2 * count, 4}, DType::f64), Tensor::of(y, {2 * count, 3}, DType::f64));
  };
  const auto model_of = [](std::optional<bool> use) {
    Masked first(4, 6), second(6, 5), last(5, 3);
    first.use = second.use = last.use = use;
    Module model = Sequential{first, relu, second, relu, last};
    initialize(model, 3);
    convert(model, DType::f64);
    return model;
  };
  for (int ranks : rank_counts({2, 3})) {
    World alone;
    Step serial(model_of({}), mse_loss, Adam{.lr = 0.01}, alone);
    const auto [x, y] = batch(0, ranks);
    for (int i = 0; i < 3; ++i) serial(x, y);
    const auto reference = outcome(alone, {}, serial.parameters());
    for (const char* strategy :
         {"data_parallel", "data_parallel(first_bucket=1, bucket=1)", "data_parallel(overlap=false)",
          "data_parallel(first_bucket=20, bucket=20) | zero(1)", "zero(2)", "zero(3)", "central_storage"}) {
      INFO(strategy << " on " << ranks << " ranks");
      const auto got = on_ranks(ranks, [&](World& world) {
        Step step(model_of(uses(world.rank())), mse_loss, Adam{.lr = 0.01}, world, parse_strategy(strategy));
        const auto [mine, target] = batch(world.rank(), 1);
        for (int i = 0; i < 3; ++i) step(mine, target);
        StepProbe(step).consolidate();
        return outcome(world, {}, step.parameters());
      });
      CHECK(got.agreed);
      CHECK(distance(got.weights, reference.weights, reference.weight_ends) < 1e-12);
    }
    const auto by_hand = on_ranks(ranks, [&](World& world) {
      Module model = model_of(uses(world.rank()));
      Parameters parameters(model);
      Optimizer optimizer(parameters, Adam{.lr = 0.01});
      Reducer reducer(parameters, world, {.first_bucket = 1, .bucket = 1});
      const auto [mine, target] = batch(world.rank(), 1);
      for (int i = 0; i < 3; ++i) {
        StepScope pass({.batch = {.global_batch = 2 * world.size()}});
        mse_loss(model(mine), target).backward();
        reducer.finish();
        optimizer.step();
      }
      return outcome(world, {}, parameters);
    });
    CHECK(by_hand.agreed);
    CHECK(distance(by_hand.weights, reference.weights, reference.weight_ends) < 1e-12);
  }
}

TEST_CASE("a reducer refuses gradients of two backwards, and takes them without overlap") {
  auto run = [](World& world, bool overlap) {
    const StepScope first_masks(StepContext{});
    Module model = small_model();
    Parameters parameters(model);
    Reducer reducer(parameters, world, {.overlap = overlap});
    for (int i = 0; i < 2; ++i) cross_entropy(model(noise(4, i)), labels(4)).backward();
    reducer.finish();
    return parameters.grads().to_vector();
  };
  for (int ranks : rank_counts({2})) {
    auto message = error_on_ranks(ranks, [&](World& world) { run(world, true); });
    CHECK(message.find("is completed a second time before finish()") != std::string::npos);
    World one;
    auto alone = run(one, false), together = on_ranks(ranks, [&](World&world) { return run(world, false); });
    for (auto& v : alone) v *= ranks;
    CHECK(distance(together, alone) < 1e-6);
  }
}

TEST_CASE("every rank starts from rank 0's weights, buffers and optimizer state") {
  for (int ranks : rank_counts({3})) {
    auto result = on_ranks(ranks, [&](World& world) {
      Module model = Sequential{Conv2d(1, 2, 3), BatchNorm(2), relu, flatten, Linear(32, 5)};
      initialize(model, 10 + world.rank());
      Parameters parameters(model);
      Optimizer optimizer(parameters, Adam{});
      optimizer.set_steps(7 + world.rank());
      for (auto& [name, state] : optimizer.state())
        state.blocks()[0].copy_from(Tensor::full({state.numel()}, world.rank() + 1.5));
      for (auto& b : parameters.buffers()) b.tensor.copy_from(Tensor::full(b.tensor.shape(), world.rank() + 0.5));
      broadcast_state(parameters, world);
      broadcast_state(optimizer, world);
      auto o = outcome(world, {}, parameters);
      for (auto& [name, state] : optimizer.state()) o.agreed = agree(world, state.blocks()[0]) && o.agreed;
      o.losses = {static_cast<double>(optimizer.steps()), optimizer.state()[0].second.to_vector()[0], o.buffers[0]};
      return o;
    });
    CHECK(result.agreed);
    CHECK(result.losses == std::vector<double>{7, 1.5, 0.5});
  }
}

TEST_CASE("a strategy names its axis, and other axes of one rank do no harm") {
  for (int ranks : rank_counts({2})) {
    auto run = [](World& world, bool named) {
      std::vector<Axis> axes(1);
      axes[0].name = "pipe";
      axes.push_back({named ? "rows" : "data", world.size()});
      Mesh mesh(world, axes);
      DataParallelOptions options;
      options.axis = axes[1].name;
      Step step(small_model(), cross_entropy, Sgd{.lr = 0.1}, mesh, data_parallel(options));
      std::vector<double> losses;
      for (int i = 0; i < 3; ++i) losses.push_back(step(noise(4, i, 4 * world.rank()), labels(4)).item());
      return outcome(world, losses, step.parameters());
    };
    auto a = on_ranks(ranks, [&](World&w) { return run(w, true); }),
         b = on_ranks(ranks, [&](World&w) { return run(w, false); });
    CHECK(a.weights == b.weights);
    CHECK(a.losses == b.losses);
  }
}

TEST_CASE("parts are the fused groups of the model's row, and cover the block") {
  World world;
  Step step(small_model(), cross_entropy, Sgd{}, world);
  std::vector<std::string> names;
  Index end = 0;
  for (auto& part : step.plan().parts) {
    names.push_back(part.name);
    CHECK(part.slice.begin == end);
    end = part.slice.end;
  }
  CHECK(end == step.parameters().size());
  CHECK(names == std::vector<std::string>{"0-1", "2", "3-4", "5", "6"});
  Step whole(Module(Sometimes()), mse_loss, Sgd{}, world);
  REQUIRE(whole.plan().parts.size() == 1);
  CHECK(whole.plan().parts[0].slice == Slice{0, whole.parameters().size()});
}

}  // namespace test_step
