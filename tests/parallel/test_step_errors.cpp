// Step when something is wrong: losses and gradients that are not finite, ranks that disagree, what cannot work.
#include "parallel/runtime/step.h"

#include <cmath>
#include <optional>
#include <thread>

#include "parallel/comm/transport/threads.h"
#include "parallel/strategies/custom.h"
#include "tests/parallel/step_models.h"
#include "tests/support/catch.h"

namespace test_step_errors {

using namespace trireme;
using namespace trireme::test;

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
    CHECK_THAT(input, mentions("step 3", "nan", "input") && contains(where));

    auto weight = error_on_ranks(ranks, [&](World& w) {
      run(w, smooth_model(), 2,
          [](Tensor&, Step& s) { s.parameters().find("2.weight")->tensor.template data<float>()[5] = NAN; });
    });
    CHECK_THAT(weight, mentions("step 2", "nan", "2.weight") && contains(where));

    auto output = error_on_ranks(ranks, [&](World& w) {
      Module model =
          Sequential{flatten, Linear(36, 5), [](const Tensor& x) { return exp(scale(x, 1e6)); }, Linear(5, 5)};
      initialize(model, 1);
      run(w, model, 1, [](Tensor&, Step&) {});
    });
    CHECK_THAT(output, mentions("step 1", "nan", "layer 2"));

    auto conv_output = error_on_ranks(ranks, [&](World& w) {
      run(w, smooth_model(), 1, [](Tensor& x, Step& s) {
        for (float& v : x.view().span<float>()) v = 3e38f;
        for (float& v : s.parameters().find("0.weight")->tensor.view().template span<float>()) v = 2;
      });
    });
    CHECK_THAT(conv_output, mentions("layer 0", "conv2d") && contains(where));
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

TEST_CASE("a step that ranks refuse while they sum gradients leaves nothing behind") {
  if (threads_only()) return;
  for (const char* updates : {"zero(1)", "central_storage"}) {
    INFO(updates);
    const auto train = [&](bool with_bad) {
      std::vector<double> weights;
      int refused = 0;
      World::threads(2, [&](World& world) {
        const Strategy strategy = data_parallel({.first_bucket = 20, .bucket = 50}) | parse_strategy(updates);
        Step step(smooth_model(), cross_entropy, Sgd{.lr = 0.1, .momentum = 0.9}, world, strategy);
        (void)step(noise(4, 1, 4 * world.rank()), labels(4));
        if (with_bad) try {
            (void)step(Tensor::full({4, 6, 6, 1}, NAN), labels(4));
          } catch (const NonFiniteError&) { refused += world.main(); }
        (void)step(noise(4, 2, 4 * world.rank()), labels(4));
        if (world.main()) weights = step.parameters().values().to_vector();
      });
      CHECK(refused == with_bad);
      return weights;
    };
    CHECK(train(true) == train(false));
  }
}

TEST_CASE("an exception before the updates leaves weights as they were, after some of them no step follows") {
  const auto fails = [](int at, bool& once) {
    return
        [at, &once](ActionContext& now) { check(now.step != at || std::exchange(once, true), "test", "fails once"); };
  };
  const auto train = [&](bool bad) {
    bool once = !bad;
    World world;
    Step step(smooth_model(), cross_entropy, Sgd{.lr = 0.1, .momentum = 0.9}, world,
              on_gradients({.name = "before", .run = fails(1, once)}));
    (void)step(noise(4, 1), labels(4));
    if (bad) CHECK_ERROR(step(noise(4, 3), labels(4)), usage, "fails once");
    (void)step(noise(4, 2), labels(4));
    return step.parameters().values().to_vector();
  };
  CHECK(train(true) == train(false));
  World world;
  bool once = false;
  const CustomAction after{.name = "after", .axis = "", .run = fails(1, once)};
  const auto rewrite = [&](Plan plan) {
    act_on_weights(plan, after);
    return plan;
  };
  Step step(smooth_model(), cross_entropy, Sgd{.lr = 0.1}, world, Strategy("after", Claim::exact, rewrite));
  (void)step(noise(4, 1), labels(4));
  CHECK_ERROR(step(noise(4, 2), labels(4)), usage, "fails once");
  CHECK_ERROR(step(noise(4, 2), labels(4)), usage, "step 2", "another Step");
  CHECK_ERROR(step.checkpoint_shard(), usage, "step 2");
  CHECK_ERROR(step.gather_weights(), usage, "step 2");
}

TEST_CASE("a gradient that is not finite behind a finite loss is found") {
  World world;
  // The derivative of sqrt at 0 is infinite.
  Module model = Sequential{Linear(2, 2), [](const Tensor& x) { return sqrt(scale(x, 0)); }, Linear(2, 5)};
  initialize(model, 1);
  Step step(model, cross_entropy, Sgd{.lr = 0.1}, world);
  auto message = error_of([&] { step(Tensor::full({2, 2}, 1), labels(2)); });
  CHECK_THAT(message, mentions("step 1", "0.weight"));
}

TEST_CASE("a dead unit's weight that is not finite is refused") {
  World world;
  Module model = Sequential{Linear(2, 3), relu, Linear(3, 5)};
  initialize(model, 1);
  Step step(model, cross_entropy, Sgd{.lr = 0.1}, world);
  (*model.as<Sequential>())[0].as<Linear>()->weight.data<float>()[1] = NAN;
  const auto message = error_of([&] { step(Tensor::full({2, 2}, 1), labels(2)); });
  // Whether relu lets a NaN through, so that the loss has it, is left to each CPU's kernel.
  CHECK_THAT(message, mentions("step 1", "0.weight"));
}

TEST_CASE("checks for finite numbers can be left out") {
  World world;
  Step step(smooth_model(), cross_entropy, Sgd{.lr = 0.1}, world, {}, {.checks = {.finite = false}});
  Tensor x = noise(4, 1);
  x.data<float>()[0] = NAN;
  CHECK(std::isnan(step(x, labels(4)).item()));
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
    CHECK_THAT(axis, mentions("step", "pipe", ranks, "data_parallel", "data"));
    auto group = error_on_ranks(ranks, [&](World& w) {
      Step step(small_model(), cross_entropy, Sgd{}, w,
                data_parallel({.norm_scope = NormScope::group, .norm_group = ranks + 1}));
    });
    CHECK(group.find("set norm_group") != std::string::npos);
  }
  World world;
  Step step(small_model(), cross_entropy, Sgd{}, world);
  CHECK_ERROR(step(noise(4, 1), labels(3)), usage, "[4, 6, 6, 1]", "[3]");
  StepScope pass({.batch = {.samples = labels(5), .global_batch = 5}});
  CHECK_ERROR(step(noise(4, 1), labels(4)), usage, 4, 5);
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

TEST_CASE("updates of one program that other ranks share each are refused") {
  if (threads_only("it brings its own ranks")) return;
  const Strategy mixed =
      data_parallel({.first_bucket = 8, .bucket = 8}) | zero(1) | Strategy("mixed", Claim::exact, [](Plan plan) {
        for (Action& a : plan.programs[0].actions)
          if (a.kind == ActionKind::update && a.slice.begin == 0) a.peer.axis = "h";
        return plan;
      });
  const auto text = error_on_ranks(2, [&](World& world) {
    Mesh mesh(world, {{"data", 2}, {"h", 1}});
    Step step(small_model(), cross_entropy, Sgd{.lr = 0.1}, mesh, mixed);
  });
  CHECK_THAT(text, mentions("plan"));
}

TEST_CASE("a pipeline of more messages than there are tags is refused before it runs") {
  if (threads_only("it brings its own ranks")) return;
  const auto text = error_on_ranks(2, [&](World& world) {
    Mesh mesh(world, {{"pipe", 2}});
    Step step(small_model(), cross_entropy, Sgd{.lr = 0.1}, mesh,
              pipeline({.micro = 33000, .schedule = "gpipe", .partition = "even"}), {.refuse_unsound = false});
  });
  CHECK_THAT(text, mentions(1, 33000, 32768));
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

}  // namespace test_step_errors
