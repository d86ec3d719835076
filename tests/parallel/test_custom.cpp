// Custom strategies from one function: the examples compared with their papers' equations, in f64; equal plans of equal
// strategies; checkpoints; refusals.
#include <cmath>

#include "framework/io/checkpoint.h"
#include "models/examples/custom_strategies.h"
#include "parallel/plan/action_kind.h"
#include "parallel/runtime/step_probe.h"
#include "parallel/strategies/codecs/codecs.h"
#include "parallel/strategies/on_call.h"
#include "tests/parallel/averaging.h"
#include "tests/parallel/plans.h"
#include "tests/support/temporary.h"

namespace test_custom {

using namespace trireme;
using namespace trireme::test;
using namespace custom_strategies;

namespace {

using Vectors = std::vector<Weights>;  // a rank's, by step

/// Notes the weights or gradients of each step where it stands among the strategies.
Strategy note(const std::string& name, OperandKind of, Vectors& log) {
  const CustomAction action{.name = name, .axis = "", .run = [&log, of](ActionContext& now) {
                              log.push_back((of == OperandKind::weights ? now.values() : now.gradients()).to_vector());
                            }};
  return {name, Claim::exact, [=](Plan plan) {
            of == OperandKind::weights ? act_on_weights(plan, action) : act_on_gradients(plan, action);
            return plan;
          }};
}

/// What a strategy finds and leaves on each rank in each step, and the weights before the first one.
struct Seen {
  std::vector<Vectors> before, after;
  Weights start;
};
Seen seen(const std::function<Strategy()>& strategy, int ranks, int steps, OperandKind of = OperandKind::weights) {
  Seen all{std::vector<Vectors>(ranks), std::vector<Vectors>(ranks), {}};
  World::threads(ranks, [&](World& world) {
    const int r = world.rank();
    const Strategy noted = note("before", of, all.before[r]) | strategy() | note("after", of, all.after[r]);
    Step step(network(), cross_entropy, Sgd{.lr = 0.2, .momentum = 0.9}, world, noted);
    if (world.main()) all.start = step.parameters().values().to_vector();
    for (int s = 0; s < steps; ++s) {
      const AveragingCase c{.strategy = {}, .axes = {{"data", ranks}}, .meet = {}};
      const Rows own = dealt(batch(c, s), r, r + 1, ranks, 1);
      (void)step(own.x, own.y).item();
      const StepTraffic traffic = StepProbe(step).traffic();
      check(traffic.planned == traffic.counted, "test", "step {}: bytes planned and counted differ", s);
    }
  });
  return all;
}

double distance(const Weights& a, const Weights& b) {
  double worst = a.size() == b.size() ? 0 : INFINITY;
  for (std::size_t k = 0; k < std::min(a.size(), b.size()); ++k) worst = std::max(worst, std::abs(a[k] - b[k]));
  return worst;
}
double dot(const Weights& a, const Weights& b) {
  double sum = 0;
  for (std::size_t k = 0; k < a.size(); ++k) sum += a[k] * b[k];
  return sum;
}
double bf16(double v) { return Tensor::full({1}, v, DType::f64).to(DType::bf16).to(DType::f64).item(); }

/// The weights after some steps of a run that saves after the third one, or that begins there.
Weights trained(const std::function<Strategy()>& strategy, const std::string& folder, bool resumed) {
  Weights last;
  World::threads(4, [&](World& world) {
    Step step(network(), cross_entropy, Sgd{.lr = 0.2}, world, strategy());
    if (resumed) (void)step.load_checkpoint(find_latest(folder).value().path);
    for (int s = resumed ? 3 : 0; s < 6; ++s) {
      const AveragingCase c{.strategy = {}, .axes = {{"data", 4}}, .meet = {}};
      const Rows own = dealt(batch(c, s), world.rank(), world.rank() + 1, 4, 1);
      (void)step(own.x, own.y).item();
      if (!resumed && s == 2)
        save_checkpoint(folder, step.parameters(), step.optimizer(), {.step = step.optimizer().steps()},
                        {.shard = step.checkpoint_shard()});
    }
    if (world.main()) last = step.parameters().values().to_vector();
  });
  return last;
}

Strategy halves() {
  return on_gradients(
      {.name = "halves", .run = [](ActionContext& now) { now.gradients().copy_from(0.5 * now.gradients()); }});
}

}  // namespace

TEST_CASE("adasum combines gradients in pairs, and the results in pairs again") {
  if (threads_only()) return;
  for (int ranks : {1, 2, 4}) {
    const Seen all = seen(adasum, ranks, 3, OperandKind::gradients);
    const auto pair = [](const Weights& a, const Weights& b) {
      Weights both(a.size());
      const double ab = dot(a, b), aa = dot(a, a), bb = dot(b, b);
      for (std::size_t k = 0; k < a.size(); ++k) both[k] = (1 - ab / (2 * aa)) * a[k] + (1 - ab / (2 * bb)) * b[k];
      return both;
    };
    for (int s = 0; s < 3; ++s) {
      const auto g = [&](int r) { return all.before[r][s]; };
      Weights want = g(0);
      if (ranks == 2) want = pair(g(0), g(1));
      if (ranks == 4) want = pair(pair(g(0), g(1)), pair(g(2), g(3)));
      for (int r = 0; r < ranks; ++r) {
        CHECK(distance(all.after[r][s], want) < 1e-12);
        CHECK(all.after[r][s] == all.after[0][s]);
      }
      if (ranks > 1) CHECK(distance(g(0), want) > 1e-3);
    }
  }
  World::threads(3, [](World& world) {
    Step step(network(), cross_entropy, Sgd{}, world, adasum());
    bool refused = false;
    try {
      step(Tensor::zeros({2, 6}, DType::f64), Tensor::zeros({2}, DType::i64));
    } catch (const Error&) { refused = true; }
    check(refused, "test", "3 ranks are accepted");
  });
}

TEST_CASE("diloco takes outer Nesterov steps on the mean of the workers' moves") {
  if (threads_only()) return;
  const Seen all = seen([] { return diloco(2, 0.7, 0.9); }, 3, 6);
  Weights theta = all.start, v(theta.size(), 0);
  for (int s = 0; s < 6; ++s) {
    if (s % 2 == 0) {
      for (int r = 0; r < 3; ++r) CHECK(all.after[r][s] == all.before[r][s]);
      continue;
    }
    for (std::size_t k = 0; k < theta.size(); ++k) {
      double move = 0;
      for (int r = 0; r < 3; ++r) move += (theta[k] - all.before[r][s][k]) / 3;
      v[k] = 0.9 * v[k] + move;
      theta[k] -= 0.7 * (move + 0.9 * v[k]);
    }
    for (int r = 0; r < 3; ++r) CHECK(distance(all.after[r][s], theta) < 1e-12);
  }
}

TEST_CASE("choco draws weights to the neighbours' estimates, which grow by what is sent") {
  if (threads_only()) return;
  for (int ranks : {1, 2, 4}) {
    const Seen all = seen([] { return choco(0.4); }, ranks, 4);
    const std::size_t n = all.start.size();
    Vectors estimates(ranks, Weights(n, 0));
    for (int s = 0; s < 4; ++s) {
      for (int r = 0; r < ranks; ++r)
        for (std::size_t k = 0; k < n; ++k) estimates[r][k] += bf16(all.before[r][s][k] - estimates[r][k]);
      for (int r = 0; r < ranks; ++r) {
        Weights want = all.before[r][s];
        const int left = (r + ranks - 1) % ranks, right = (r + 1) % ranks, others = std::min(ranks - 1, 2);
        for (std::size_t k = 0; k < n; ++k)
          for (int j = 0; j < ranks; ++j)
            if (j != r && (j == left || j == right))
              want[k] += 0.4 / (1 + others) * (estimates[j][k] - estimates[r][k]);
        CHECK(distance(all.after[r][s], want) < 1e-12);
      }
    }
  }
}

TEST_CASE("counted traffic shows a custom action that sends more, or less, than it declares") {
  if (threads_only()) return;
  for (const int sends : {0, 1, 2}) {
    World::threads(2, [&](World& world) {
      const Strategy strategy =
          periodically({.name = "counts", .sends = {CallKind::all_reduce}, .run = [sends](ActionContext& now) {
                          for (int k = 0; k < sends; ++k) now.all_reduce(now.values(), ReduceOp::average);
                        }});
      Step step(network(), cross_entropy, Sgd{.lr = 0.2}, world, strategy);
      const AveragingCase c{.strategy = {}, .axes = {{"data", 2}}, .meet = {}};
      const Rows own = dealt(batch(c, 0), world.rank(), world.rank() + 1, 2, 1);
      (void)step(own.x, own.y).item();
      const auto [planned, counted] = StepProbe(step).traffic();
      check((planned == counted) == (sends == 1), "test", "{} calls of 1: planned and counted are equal: {}", sends,
            planned == counted);
      const TrafficCount none;
      const auto along = [&](const Traffic& t) { return t.contains("data") ? t.at("data") : none; };
      check(along(counted).calls == along(planned).calls + sends - 1, "test", "{} calls are counted of {}",
            along(counted).calls, along(planned).calls);
    });
  }
  SUCCEED("ranks check");
}

TEST_CASE("what custom actions keep comes back from a checkpoint") {
  if (threads_only()) return;
  for (const auto& strategy :
       std::vector<std::function<Strategy()>>{[] { return diloco(2); }, [] { return choco(); }}) {
    const Temporary folder;
    const Weights whole = trained(strategy, folder.path(), false);
    CHECK(trained(strategy, folder.path(), true) == whole);
  }
}

TEST_CASE("custom strategies that are made twice give equal plans, which keep what their functions need") {
  Plan alone = chain();
  alone.axes = {{"data", 2}};
  const Plan first = diloco(4, 0.5)(alone), second = diloco(4, 0.5)(alone);
  CHECK(first == second);
  CHECK(first.hash() == second.hash());
  CHECK(first.to_string() == second.to_string());
  CHECK(!(first == diloco(4, 0.6)(alone)));
  CHECK(first.hash() != diloco(4, 0.6)(alone).hash());
  CHECK(faults(first) == "");
  CHECK(faults(choco()(alone)) == "");
  CHECK(faults(adasum()(alone)) == "");
  CHECK(diloco(4).text().find("every=4, lr=0.7, momentum=0.9, axis=data") != std::string::npos);
}

TEST_CASE("an action on gradients after their sum acts on the sum") {
  if (threads_only()) return;
  struct Arrangement {
    std::string strategy;
    std::vector<Axis> axes;
  };
  for (const auto& [text, axes] :
       {Arrangement{"serial", {{"data", 1}}}, Arrangement{"data_parallel", {{"data", 2}}},
        Arrangement{"accumulate(micro=2) | data_parallel", {{"data", 2}}},
        Arrangement{"pipeline(micro=2, partition=even) | data_parallel", {{"pipe", 2}, {"data", 2}}}}) {
    INFO(text);
    const auto weights = [&](const Strategy& strategy, double lr) {
      std::vector<double> last;
      World::threads(ranks_of(axes), [&](World& world) {
        Mesh mesh(world, axes);
        Step step(network(), cross_entropy, Sgd{.lr = lr}, mesh, strategy);
        for (int s = 0; s < 3; ++s) {
          const AveragingCase c{.strategy = {}, .axes = axes, .micro = 2, .least = 4, .meet = {}};
          const RankShare mine = step.shard();
          const Rows own = dealt(batch(c, s), mine.rank, mine.rank + 1, mine.size, step.plan().microbatches);
          (void)step(own.x, own.y).item();
        }
        if (world.main()) last = step.parameters().values().to_vector();
      });
      return last;
    };
    CHECK(weights(parse_strategy(text) | halves(), 0.25) == weights(parse_strategy(text), 0.125));
    CHECK((halves() | parse_strategy(text)).text() == (parse_strategy(text) | halves()).text());
  }
}

TEST_CASE("a codec by its row is what compress makes of its name") {
  const Plan plan = parallel_chain();
  const Strategy door = on_gradients(codec_rows::bf16, {{"from", 0}, {"residual", 1}});
  CHECK(door(plan).programs == compress("bf16")(plan).programs);
  CHECK(door(plan).state == compress("bf16")(plan).state);
  Plan alone = chain();
  alone.axes = {{"data", 2}};
  CHECK(door(alone).programs == compress("bf16")(alone).programs);
}

TEST_CASE("a custom phase may have the name of a phase on call") {
  Plan alone = chain();
  alone.axes = {{"data", 2}};
  const auto evaluation = [&](const std::string& phase) {
    const Strategy still = periodically({.name = "still", .run = [](ActionContext&) {}, .phase = phase});
    return actions_on_call(with_phases_on_call(still(alone), {}).programs[0], phases::evaluation);
  };
  CHECK(!evaluation("evaluation").empty());
  CHECK(evaluation("evaluation").size() == evaluation("other").size());
}

TEST_CASE("custom strategies that cannot be are refused") {
  const auto nothing = [](ActionContext&) {};
  CHECK_ERROR(periodically({.run = nothing}), usage, "strategy", ".name");
  CHECK_ERROR(periodically({.name = "still"}), usage, "strategy", "still");
  CHECK_ERROR(periodically({.name = "alone", .axis = "", .run = nothing}), usage, "alone", "axis");
  Plan both = chain();
  both.axes = {{"a", 2}, {"b", 2}};
  const auto kept = [&](const char* axis) {
    return periodically({.name = "kept", .axis = axis, .keeps = {{.name = "v"}}, .run = nothing});
  };
  CHECK_ERROR(kept("b")(kept("a")(both)), usage, "'v'");
  CHECK_ERROR(periodically({.name = "never", .every = 0, .run = nothing}), usage, "never", "every=0");
  CHECK_ERROR(periodically({.name = "lost", .sends = {CallKind::send}, .run = nothing}), usage, "lost", "pairs");
  CHECK_ERROR(periodically({.name = "sum", .sends = {CallKind::all_reduce}, .peer = {.pairs = "ring"}, .run = nothing}),
              usage, "sum", "all_reduce");
  CHECK_ERROR(on_gradients({.name = "late", .every = 2, .sends = {CallKind::all_reduce}, .run = nothing}), usage,
              "late", "every");
  Plan alone = chain();
  alone.axes = {{"data", 2}};
  CHECK_ERROR(adasum()(data_parallel()(alone)), usage, "adasum", "data");
  CHECK_ERROR(diloco()(data_parallel()(alone)), usage, "diloco", "data");
  CHECK_ERROR(choco()(diloco()(alone)), usage, "choco", "data");
  CHECK_ERROR(halves()(zero(2)(alone)), usage, "halves", "zero");
  check_finds(zero(1)(halves()(data_parallel()(alone))), "halves");
  // The function runs, and nothing makes weights alike in time.
  Plan seldom = diloco(4)(alone);
  seldom.consistency["data"].bound = 3;
  check_finds(seldom, "no action makes them alike every 3 steps");
  // Gradients are changed behind the update that reads them.
  Plan behind = adasum()(alone);
  auto& actions = behind.programs[0].actions;
  const auto at = std::ranges::find_if(actions, [](const Action& a) { return a.kind->name == "adasum"; });
  Action moved = *at;
  actions.erase(at);
  for (Action& a : actions) a.after.clear();
  actions.push_back(moved);
  check_finds(behind, "no action makes them alike");
}

}  // namespace test_custom
