// Step and Reducer: against the hand-written loop, without a loader, and when something is wrong.
#include "parallel/step.h"

#include <cmath>
#include <optional>
#include <thread>

#include "framework/init.h"
#include "framework/layers.h"
#include "parallel/transport/threads.h"
#include "tests/catch.h"
#include "tests/ranks.h"

using namespace trireme;
using namespace trireme::test;

namespace {

Module small_model(std::uint64_t seed = 1) {
  Module model = Sequential{Conv2d(1, 3, 3), relu, flatten, Linear(48, 12), relu, Dropout(0.4), Linear(12, 5)};
  initialize(model, seed);
  return model;
}
/// Without ReLU, which may turn NaN into 0.
Module smooth_model() {
  Module model = Sequential{Conv2d(1, 3, 3), flatten, Linear(48, 12), Linear(12, 5)};
  initialize(model, 1);
  return model;
}
Tensor noise(Index rows, std::uint64_t salt, Index first = 0) {
  std::vector<double> values;
  for (Index i = first * 36; i < (first + rows) * 36; ++i)
    values.push_back(static_cast<double>(mix(salt * 7919 + static_cast<std::uint64_t>(i)) % 1000) / 500 - 1);
  return Tensor::of(values, {rows, 6, 6, 1});
}
Tensor labels(Index rows, Index first = 0) {
  std::vector<double> values;
  for (Index i = first; i < first + rows; ++i)
    values.push_back(static_cast<double>(mix(static_cast<std::uint64_t>(i)) % 5));
  return Tensor::of(values, {rows}, DType::i64);
}
std::pair<Index, Index> own_rows(const World& world, Index rows) { return share(rows, world.rank(), world.size()); }

/// What was thrown on this rank, on all ranks if they are threads.
template <class F>
std::string error_of(F&& body) {
  try {
    body();
  } catch (const Error& e) { return e.what(); }
  return "";
}
/// Rank 0's error when every rank runs body; body's errors stay on their rank.
template <class F>
std::string error_on_ranks(int ranks, F&& body) {
  return on_ranks(ranks, [&](World& world) { return error_of([&] { body(world); }); });
}

/// A weight that this rank uses only when told to.
struct Sometimes {
  Linear always{4, 2}, rare{4, 2};
  bool use = true;
  Tensor operator()(const Tensor& x) const { return use ? always(x) + rare(x) : always(x); }
  void visit(const Visit& v) { v("always", always), v("rare", rare); }
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
  void visit(const Visit& v) { v("always", always), v("rare", rare); }
};

}  // namespace

TEST_CASE("a step is the hand-written loop") {
  Recipe recipe = Sgd{.lr = 0.1, .momentum = 0.9};
  auto by_step = on_ranks(1, [&](World& world) {
    Step step(small_model(), cross_entropy, recipe, world);
    std::vector<double> losses;
    for (int i = 0; i < 6; ++i) losses.push_back(step(noise(8, i), labels(8)).item());
    return outcome(world, losses, step.parameters());
  });
  // On a rank, too: its kernels use its share of the threads, and the order of their sums goes by how many there are.
  auto by_hand = on_ranks(1, [&](World& world) {
    Module model = small_model();
    Parameters parameters(model);
    Optimizer optimizer(parameters, recipe);
    std::vector<double> losses;
    for (int i = 0; i < 6; ++i) {
      PassScope pass({.batch = {.step = static_cast<std::uint64_t>(i), .global_batch = 8}});
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

TEST_CASE("a hand-written loop with a Reducer is a step, bit by bit") {
  Recipe recipe = Sgd{.lr = 0.1, .momentum = 0.9};
  for (int ranks : rank_counts({1, 2, 3}))
    for (bool overlap : {true, false}) {
      auto loop = on_ranks(ranks, [&](World& world) {
        Module model = small_model(1 + world.rank());
        Parameters parameters(model);
        Optimizer optimizer(parameters, recipe);
        broadcast_state(parameters, world);
        Reducer reducer(parameters, world, {.first_bucket = 30, .bucket = 200, .overlap = overlap});
        std::vector<double> losses;
        auto [begin, end] = own_rows(world, 8);
        for (int i = 0; i < 6; ++i) {
          Tensor ids = Tensor::empty({end - begin}, DType::i64);
          for (Index k = begin; k < end; ++k) ids.data<std::int64_t>()[k - begin] = k;
          PassScope pass({.batch = {.step = static_cast<std::uint64_t>(i), .samples = ids, .global_batch = 8}});
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
        Step step(small_model(), cross_entropy, recipe, world, data_parallel({.first_bucket = 30, .bucket = 200}));
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
        step.gather();
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
        PassScope pass({.batch = {.global_batch = 2 * world.size()}});
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
    const PassScope first_masks(Pass{});
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

TEST_CASE("a loss that is not finite names the step and where it began") {
  for (int ranks : rank_counts({1, 3})) {
    INFO(ranks << " ranks");
    const int culprit = ranks - 1;
    std::string where = ranks > 1 ? fmt::format(", on rank {}", culprit) : "";
    auto run = [&](World& world, Module model, int bad_step, auto spoil) {
      Step step(model, cross_entropy, Sgd{.lr = 0.1}, world);
      for (int i = 1; i <= bad_step; ++i) {
        Tensor x = noise(4, i, 4 * world.rank());
        if (i == bad_step && world.rank() == culprit) spoil(x, step);
        auto before = step.parameters().values().to_vector();
        auto message = error_of([&] { step(x, labels(4)); });
        if (message.empty()) continue;
        bool untouched = step.optimizer().steps() == i - 1 && step.parameters().buffers().empty();
        if (i == bad_step && untouched) throw Error(message, std::source_location::current());
      }
    };
    auto input = error_on_ranks(
        ranks, [&](World& w) { run(w, smooth_model(), 3, [](Tensor& x, Step&) { x.data<float>()[7] = NAN; }); });
    CHECK(input == "step 3: loss is nan; first seen in the input batch" + where);

    auto weight = error_on_ranks(ranks, [&](World& w) {
      run(w, smooth_model(), 2,
          [](Tensor&, Step& s) { s.parameters().find("2.weight")->tensor.template data<float>()[5] = NAN; });
    });
    CHECK(weight == "step 2: loss is nan; first seen in parameter '2.weight' (an earlier update made it so)" + where);

    auto output = error_on_ranks(ranks, [&](World& w) {
      Module model =
          Sequential{flatten, Linear(36, 5), [](const Tensor& x) { return exp(scale(x, 1e6)); }, Linear(5, 5)};
      initialize(model, 1);
      run(w, model, 1, [](Tensor&, Step&) {});
    });
    CHECK(output.find("step 1: loss is nan; first seen in the output of layer 2 (layer '2')") == 0);

    auto conv_output = error_on_ranks(ranks, [&](World& w) {
      run(w, smooth_model(), 1, [](Tensor& x, Step& s) {
        for (float& v : x.view().span<float>()) v = 3e38f;
        for (float& v : s.parameters().find("0.weight")->tensor.view().template span<float>()) v = 2;
      });
    });
    CHECK(conv_output.find("first seen in the output of layer 0 (conv2d '0')" + where) != std::string::npos);
  }
}

TEST_CASE("a step that is refused leaves nothing behind") {
  const auto train = [](bool with_bad) {
    World world;
    Step step(smooth_model(), cross_entropy, Sgd{.lr = 0.1, .momentum = 0.9}, world);
    (void)step(noise(4, 1), labels(4));
    if (with_bad) CHECK_THROWS(step(Tensor::full({4, 6, 6, 1}, NAN), labels(4)));
    (void)step(noise(4, 2), labels(4));
    return step.parameters().values().to_vector();
  };
  CHECK(train(true) == train(false));
}

TEST_CASE("a gradient that is not finite behind a finite loss is found") {
  World world;
  // The derivative of sqrt at 0 is infinite.
  Module model = Sequential{Linear(2, 2), [](const Tensor& x) { return sqrt(scale(x, 0)); }, Linear(2, 5)};
  initialize(model, 1);
  Step step(model, cross_entropy, Sgd{.lr = 0.1}, world);
  auto message = error_of([&] { step(Tensor::full({2, 2}, 1), labels(2)); });
  CHECK(message.find("step 1: loss is ") == 0);
  CHECK(message.find("but the gradient of '0.weight' is not finite; everything before it is finite") !=
        std::string::npos);
}

TEST_CASE("check_finite can be left out") {
  World world;
  Step step(smooth_model(), cross_entropy, Sgd{.lr = 0.1}, world, {}, {.check_finite = false});
  Tensor x = noise(4, 1);
  x.data<float>()[0] = NAN;
  CHECK(std::isnan(step(x, labels(4)).item()));
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

TEST_CASE("ranks that are about to do different things are named before they start") {
  for (int ranks : rank_counts({3})) {
    const int odd = ranks - 1;
    auto differ = [&](auto options, auto seed) {
      return error_on_ranks(ranks, [&](World& world) {
        Step step(small_model(), cross_entropy, Sgd{}, world, data_parallel(options(world.rank() == odd)),
                  {.seed = seed(world.rank() == odd)});
      });
    };
    auto same = [](bool) { return std::uint64_t{1}; };
    CHECK(differ([](bool) { return DataParallelOptions{}; }, same) == "");
    auto text = differ([](bool is_odd) { return DataParallelOptions{.bucket = is_odd ? 100 : 200}; }, same);
    INFO(text);
    CHECK(text.find(fmt::format("rank {} has ", odd)) != std::string::npos);
    CHECK(text.find("rank 1 has ") == (odd == 1 ? text.find(fmt::format("rank {} has ", odd)) : std::string::npos));
    CHECK(differ([](bool) { return DataParallelOptions{}; }, [](bool is_odd) { return std::uint64_t(is_odd); }) != "");
    CHECK(differ([](bool o) { return DataParallelOptions{.norm_scope = o ? NormScope::global : NormScope::local}; },
                 same) != "");
  }
}

TEST_CASE("what cannot work is refused with the remedy") {
  for (int ranks : rank_counts({2})) {
    auto serial =
        error_on_ranks(ranks, [](World& w) { Step step(small_model(), cross_entropy, Sgd{}, w, Strategy()); });
    CHECK(serial.find("is never reduced over the") != std::string::npos);
    CHECK(serial.find("use data_parallel()") != std::string::npos);
    auto axis = error_on_ranks(ranks, [](World& w) {
      Mesh mesh(w, {{"pipe", w.size()}, {"data", 1}});
      Step step(small_model(), cross_entropy, Sgd{}, mesh, data_parallel());
    });
    CHECK(axis ==
          fmt::format("step: mesh axis 'pipe' has {} ranks, but strategy 'data_parallel' uses only 'data'", ranks));
    auto group = error_on_ranks(ranks, [&](World& w) {
      Step step(small_model(), cross_entropy, Sgd{}, w,
                data_parallel({.norm_scope = NormScope::group, .norm_group = ranks + 1}));
    });
    CHECK(group.find("set norm_group") != std::string::npos);
  }
  World world;
  Step step(small_model(), cross_entropy, Sgd{}, world);
  CHECK_THROWS_WITH(step(noise(4, 1), labels(3)), contains("x [4, 6, 6, 1] and y [3] must have one row per sample"));
  PassScope pass({.batch = {.samples = labels(5), .global_batch = 5}});
  CHECK_THROWS_WITH(step(noise(4, 1), labels(4)), contains("x has 4 rows, but its batch names 5 samples"));
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

TEST_CASE("an error on one rank ends the others") {
  if (threads_only("there the whole job ends, see the tests of World")) return;
  auto message = error_of([] {
    World::threads(3, [](World& world) {
      Step step(small_model(), cross_entropy, Sgd{}, world);
      Tensor wrong = Tensor::full({4}, world.rank() == 1 ? 77 : 1, DType::i64);  // label out of range
      for (int i = 0; i < 3; ++i) step(noise(4, i), wrong);
    });
  });
  CHECK(message.find("rank 1: ") == 0);
  CHECK(message.find("77") != std::string::npos);
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

TEST_CASE("updates of one role that other ranks share each are refused") {
  if (threads_only("it brings its own ranks")) return;
  const Strategy mixed =
      data_parallel({.first_bucket = 8, .bucket = 8}) | zero(1) | Strategy("mixed", Claim::exact, [](Plan plan) {
        for (Action& a : plan.roles[0].actions)
          if (a.verb == Verb::update && a.slice.begin == 0) a.peer.axis = "h";
        return plan;
      });
  const auto text = error_on_ranks(2, [&](World& world) {
    Mesh mesh(world, {{"data", 2}, {"h", 1}});
    Step step(small_model(), cross_entropy, Sgd{.lr = 0.1}, mesh, mixed, {.refuse_unsound = false});
  });
  CHECK_THAT(text, contains("is shared over other ranks than the updates before it"));
}

TEST_CASE("a pipeline of more messages than there are tags is refused before it runs") {
  if (threads_only("it brings its own ranks")) return;
  const auto text = error_on_ranks(2, [&](World& world) {
    Mesh mesh(world, {{"pipe", 2}});
    Step step(small_model(), cross_entropy, Sgd{.lr = 0.1}, mesh,
              pipeline({.micro = 33000, .schedule = "gpipe", .partition = "even"}), {.refuse_unsound = false});
  });
  CHECK_THAT(text, contains("1 cuts of the model times 33000 micro-batches are more than the 32768 tags"));
}

TEST_CASE("a world is told its device before communicators are split from it") {
  if (threads_only("it brings its own ranks")) return;
  const auto text = error_on_ranks(2, [](World& world) {
    Mesh mesh(world);
    (void)world.use(cuda(0));
  });
  CHECK_THAT(text, contains("2 communicators were split") || contains("1 communicators were split"));
  CHECK_THAT(text, contains("before a Mesh or a Step is made"));
  CHECK(error_on_ranks(2, [](World& world) {
          { Mesh mesh(world); }
          (void)world.use(cuda(0));
        }) == "");
}

TEST_CASE("an exception that leaves a World's scope ends the waits of the other ranks") {
  if (threads_only("it brings its own ranks")) return;
  auto comms = thread_communicators(2);
  std::string text;
  std::thread waits([&, comm = std::move(comms[0])]() mutable {
    World world(std::move(comm), 0, 2);
    text = error_of([&] { world.comm().barrier(); });
  });
  const auto fails = [&] {
    World world(std::move(comms[1]), 1, 2);
    throw std::runtime_error("mine");
  };
  CHECK_THROWS_WITH(fails(), "mine");
  waits.join();
  CHECK_THAT(text, contains("rank 1: an exception left its World"));
}
