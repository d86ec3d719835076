// Strategies whose workers train apart, over time: evaluation, checkpoints, a first part that is synchronous, refusals.
#include <cmath>

#include "framework/io/checkpoint.h"
#include "parallel/plan/action_kind.h"
#include "parallel/runtime/step_probe.h"
#include "tests/parallel/averaging.h"
#include "tests/parallel/plans.h"
#include "tests/support/temporary.h"

namespace test_averaging_runs {

using namespace trireme;
using namespace trireme::test;

namespace {

/// Trains a model with batch norm; what each rank has behind the last step: weights, then running statistics.
struct Run {
  int from = 0, to = 6;
  std::string load = {}, save = {};
  int consolidate_behind = -1;  // a step
};
std::vector<Weights> run_normed(const std::string& strategy, const Run& run,
                                std::vector<Weights>* evaluated = nullptr) {
  std::vector<Weights> all(4);
  if (evaluated) evaluated->resize(4);
  World::threads(4, [&](World& world) {
    Module model = Sequential{Linear(6, 5), BatchNorm(5), relu, Linear(5, 3)};
    convert(model, DType::f64);
    initialize(model, 1);
    Step step(model, cross_entropy, Sgd{.lr = 0.2, .momentum = 0.9}, world, parse_strategy(strategy),
              {.epoch_steps = 2});
    if (!run.load.empty()) (void)step.load_checkpoint(find_latest(run.load).value().path);
    const AveragingCase c{.strategy = strategy, .axes = {{"data", 4}}, .least = 2, .meet = {}};
    const auto now = [&] {
      Weights w = step.parameters().values().to_vector();
      for (const auto& b : step.parameters().buffers())
        for (double v : b.tensor.to_vector()) w.push_back(v);
      return w;
    };
    for (int s = run.from; s < run.to; ++s) {
      const RankShare mine = step.shard();
      const Rows own = dealt(batch(c, s), mine.rank, mine.rank + 1, mine.size, 1);
      (void)step(own.x, own.y).item();
      if (s != run.consolidate_behind) continue;
      StepProbe(step).consolidate();
      if (evaluated) (*evaluated)[world.rank()] = now();
    }
    all[world.rank()] = now();
    if (!run.save.empty())
      save_checkpoint(run.save, step.parameters(), step.optimizer(), {.step = step.optimizer().steps()},
                      {.shard = step.checkpoint_shard()});
  });
  return all;
}
const std::vector<std::string> apart{"local_sgd(every=4)",
                                     "local_sgd(every=2, outer_lr=0.7, outer_momentum=0.5)",
                                     "local_sgd(every=2, from_epoch=1)",
                                     "local_sgd(every=2, outer_momentum=0.5, from_epoch=1)",
                                     "easgd(every=2)",
                                     "gossip(graph=ring)",
                                     "gossip(graph=random, global_every=4)",
                                     "gossip(graph=random, mode=push_sum, seed=2)"};

}  // namespace

TEST_CASE("evaluation sees the mean of all workers, and training goes on from each one's own") {
  if (threads_only()) return;
  for (const std::string& strategy : apart) {
    INFO(strategy);
    const auto at_three = run_normed(strategy, {.to = 3}), undisturbed = run_normed(strategy, {});
    std::vector<Weights> evaluated;
    CHECK(run_normed(strategy, {.consolidate_behind = 2}, &evaluated) == undisturbed);
    double worst = 0;
    for (int r = 0; r < 4; ++r)
      for (std::size_t k = 0; k < at_three[0].size(); ++k) {
        const double mean = (at_three[0][k] + at_three[1][k] + at_three[2][k] + at_three[3][k]) / 4;
        worst = std::max(worst, std::abs(evaluated[r][k] - mean));
      }
    CHECK(worst < 1e-14);
  }
}

TEST_CASE("workers that train apart go on from a checkpoint bit for bit") {
  if (threads_only()) return;
  for (const std::string& strategy : apart)
    for (int middle : {1, 2, 3}) {
      INFO(strategy << " saved behind step " << middle);
      const Temporary folder;
      run_normed(strategy, {.to = middle, .save = folder.path()});
      CHECK(run_normed(strategy, {.from = middle, .load = folder.path()}) == run_normed(strategy, {}));
    }
}

TEST_CASE("post-local: gradients are averaged before, weights after") {
  if (threads_only()) return;
  const auto before = run_normed("local_sgd(every=3, from_epoch=1)", {.to = 2});
  const auto synchronous = run_normed("data_parallel(norm_scope=local)", {.to = 2});
  double worst = 0;
  for (std::size_t k = 0; k < 58; ++k)  // weights
    for (int r = 0; r < 4; ++r) worst = std::max(worst, std::abs(before[r][k] - synchronous[r][k]));
  CHECK(worst < 1e-13);
  const auto apart_again = run_normed("local_sgd(every=3, from_epoch=1)", {.to = 3});
  CHECK(apart_again[0] != apart_again[1]);
}

TEST_CASE("running statistics are averaged in the steps in which weights are") {
  Plan plan = chain();
  plan.buffers = 8;
  plan.parts[0].buffers = {0, 8};
  plan.axes = {{"node", 2}, {"data", 2}};
  plan.epoch_steps = 5;
  plan = (local_sgd({.every = 4, .from_epoch = 1, .axis = "node"}) | data_parallel())(plan);
  const Program& program = plan.programs[0];
  std::vector<Trigger> weights, statistics;
  for (const Action& a : program.actions) {
    if (a.peer.axis == "node" && a.kind->name == "mean") weights.push_back(program.trigger(a));
    if (a.peer.axis == "node" && averages_statistics(a)) statistics.push_back(program.trigger(a));
  }
  INFO(plan.to_string());
  CHECK(weights.size() == 1);
  CHECK(weights == std::vector<Trigger>{{.every = 4, .offset = 0, .from = 5}});
  CHECK(weights == statistics);
}

TEST_CASE("strategies whose workers train apart refuse what makes no sense, in one line each") {
  if (threads_only()) return;
  const auto said = [](const std::string& strategy, int ranks = 3, std::int64_t epoch_steps = 0) {
    return on_ranks(ranks, [&](World& world) -> std::string {
      try {
        Mesh mesh(world, {{"data", ranks}});
        Step step(network(), cross_entropy, Sgd{.lr = 0.1}, mesh, parse_strategy(strategy),
                  {.epoch_steps = epoch_steps});
        return "accepted";
      } catch (const Error& e) { return e.what(); }
    });
  };
  const std::vector<std::pair<std::string, std::string>> refused{
      {"local_sgd(every=0)", "every"},
      {"local_sgd(outer_lr=0)", "outer_lr=0"},
      {"local_sgd(outer_momentum=1)", "outer_momentum=1"},
      {"local_sgd(from_epoch=1)", "from_epoch=1"},
      {"local_sgd(axis=node)", "no axis 'node', only 'data'"},
      {"easgd(rho=-1)", "rho"},
      {"gossip(graph=moebius)", "graph=moebius"},
      {"gossip(graph=random)", "an odd number"},
      {"gossip(global_every=-1)", "global_every"},
      {"gossip(mode=late)", "there is no 'late'; there are: sync, push_sum, async"},
      {"gossip(mode=push_sum, graph=star)", "graph=star"},
      {"gossip(mode=push_sum, graph=complete)", "graph=complete"},
      {"gossip(mode=push_sum, global_every=4)", "global_every=4 needs mode=sync"},
      {"gossip(mode=async)", "a ring of 3 ranks"},
      {"gossip(mode=async, graph=exponential)", "graph=exponential"},
      {"gossip(mode=async, global_every=4)", "global_every=4 needs mode=sync"},
      {"parameter_server | gossip(mode=async)", "parameter_server or gossip"},
      {"data_parallel | local_sgd", "mesh axis 'data' already"},
      {"local_sgd | data_parallel", "mesh axis 'data' already"},
      {"parameter_server | local_sgd", "parameter_server or local_sgd"},
      {"gossip | parameter_server", "parameter_server or gossip"},
      {"zero(3) | local_sgd", "mesh axis 'data' already"},
      {"local_sgd | gossip", "mesh axis 'data' already, so gossip"},
      {"data_parallel(norm_scope=global) | local_sgd | zero(1)", "already"},
  };
  for (const auto& [strategy, text] : refused) {
    const std::string got = said(strategy);
    INFO(strategy << ": " << got);
    CHECK(got.find(text) != got.npos);
    CHECK(got.find('\n') == got.npos);
  }
  CHECK(said("local_sgd(from_epoch=1)", 3, 5) == "accepted");
  CHECK(said("gossip(graph=random)", 4) == "accepted");
  CHECK(said("gossip(mode=async)", 4) == "accepted");
  CHECK(said("gossip(mode=async, graph=random)", 3) == "accepted");
  CHECK(said("gossip(graph=random, mode=push_sum)", 3) == "accepted");
}

}  // namespace test_averaging_runs
