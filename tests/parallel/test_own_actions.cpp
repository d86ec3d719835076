// Kinds of actions, phases, codecs and state of a caller's own, through Step; and what check() says of those that
// cannot be.
#include <atomic>
#include <cmath>
#include <map>

#include "framework/io/checkpoint.h"
#include "parallel/plan/action_context.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/codec.h"
#include "parallel/runtime/step.h"
#include "parallel/runtime/step_probe.h"
#include "parallel/strategies/rebuild.h"
#include "tests/parallel/plans.h"
#include "tests/parallel/step_models.h"
#include "tests/parallel/training.h"
#include "tests/support/temporary.h"

namespace test_own_actions {

using namespace trireme;
using namespace trireme::test;

namespace {

const ActionRow mean_of_weights{
    .name = "mean_of_weights",
    .is_collective = true,
    .access =
        [](const Plan&, const Program&, const Liveness&, const Action& a) {
          return std::vector{Operand{.kind = OperandKind::weights, .slice = a.slice, .written = true}};
        },
    .calls =
        [](const Action& a, int, Index element) {
          return std::vector{PlannedCall{CallKind::all_reduce, a.slice.size() * element}};
        },
    .start =
        [](ActionContext& now) { return now.comm ? now.comm->all_reduce(now.values(), ReduceOp::average) : Work(); }};

/// Each rank trains for itself; weights become their mean in the steps of the trigger.
Strategy means(const Trigger& trigger, const std::string& axis = "data") {
  Strategy s("means", Claim::statistical, [=](Plan plan) {
    for (Program& program : plan.programs) {
      const ActionId update = find(program, ActionKind::update);
      if (update < 0) continue;
      Action mean = on_slice(mean_of_weights, Stream::comm, program.actions[update].slice, axis, {update});
      mean.phase = add_phase(program, "mean", trigger);
      program.actions.push_back(mean);
    }
    plan.consistency[axis] = {Consistency::Kind::periodic, trigger.every + trigger.from};
    return plan;
  });
  s.norm_scope = NormScope::local;
  return s;
}

Module network() { return Sequential{Linear(6, 5), relu, Linear(5, 3)}; }
Tensor noise(Index rows, int seed) {
  std::vector<double> values;
  for (Index i = 0; i < rows * 6; ++i) values.push_back(std::sin(static_cast<double>(i * 7 + seed)));
  return Tensor::of(values, {rows, 6}, DType::f64);
}
Tensor labels(Index rows) {
  const Tensor y = Tensor::zeros({rows}, DType::i64);
  for (Index i = 0; i < rows; ++i) y.data<std::int64_t>()[i] = i % 3;
  return y;
}

/// After each step: whether all ranks have the same weights.
std::vector<bool> alike_after(const Strategy& strategy, int steps, std::vector<Axis> axes = {{"data", 2}}) {
  std::vector<bool> alike;
  World::threads(ranks_of(axes), [&](World& world) {
    Mesh mesh(world, axes);
    Module model = network();
    convert(model, DType::f64);
    initialize(model, 1);
    Step step(model, cross_entropy, Sgd{.lr = 0.1}, mesh, strategy);
    for (int s = 0; s < steps; ++s) {
      step(noise(4, world.rank() * 31 + s), labels(4));
      const Tensor most = step.parameters().values().rows(0, step.parameters().size()).clone(), least = most.clone();
      world.comm().all_reduce(most, ReduceOp::max).wait();
      world.comm().all_reduce(least, ReduceOp::min).wait();
      if (world.main()) alike.push_back(most.to_vector() == least.to_vector());
      const StepTraffic traffic = StepProbe(step).traffic();
      check(traffic.planned == traffic.counted, "test", "step {}: bytes planned and counted differ", s);
    }
  });
  return alike;
}

}  // namespace

TEST_CASE("actions of a phase run in its steps, and in no other") {
  if (threads_only()) return;
  for (const Trigger& t :
       {Trigger{}, Trigger{.every = 3, .offset = 2}, Trigger{.every = 3}, Trigger{.every = 2, .offset = 1},
        Trigger{.every = 2, .from = 3}, Trigger{.every = 1, .from = 2}}) {
    INFO(to_string(t));
    const auto alike = alike_after(means(t), 7);
    for (std::int64_t step = 0; step < 7; ++step) CHECK(alike[static_cast<std::size_t>(step)] == t.runs_at(step));
  }
}

TEST_CASE("weights are alike along some axes after every step, and along others now and then") {
  if (threads_only()) return;
  const Strategy both = data_parallel({.axis = "node"}) | means({.every = 2, .offset = 1});
  const auto alike = alike_after(both, 4, {{"data", 2}, {"node", 2}});
  CHECK(alike == std::vector<bool>{false, true, false, true});
}

TEST_CASE("check finds phases, codecs and kinds that cannot be") {
  const Plan good = parallel_chain();
  for (ActionId id = 0; id < std::ssize(good.programs[0].actions); ++id) {
    Plan bad = good;
    bad.programs[0].actions[id].phase = add_phase(bad.programs[0], "seldom", {.every = 4});
    check_finds(bad, "it must run in every step");
  }
  Plan bad = good;
  bad.programs[0].actions[0].phase =
      add_phase(bad.programs[0], "never", {.every = 7, .offset = 3, .from = 5, .until = 6});
  check_finds(bad, "phase 'never' never runs");

  static const Codec half{
      .name = "half", .length = [](const CodecContext& now) { return now.size / 2; }, .states = {{"rest"}}};
  bad = good;
  for (Action& a : bad.programs[0].actions) a.codec = &half;
  check_finds(bad, "the codec half can encode an all_reduce of gradients only");
  check_finds(bad, "the codec keeps the state 'rest', which the plan does not declare");
  CHECK(faults(with_codec(good, half)) == "");
  CHECK_ERROR(with_codec(with_codec(good, half), half), usage, "codec", "half");
  CHECK_ERROR(with_codec(chain(), half), usage, "codec", "data_parallel");
  CHECK_ERROR(with_codec(zero(1)(good), half), usage, "codec", "all_reduce");
  check_finds(zero(1)(with_codec(good, half)), "all_reduce");

  Plan local = chain();
  local.axes = {{"data", 2}};
  for (const Trigger& t : {Trigger{.every = 4}, Trigger{.every = 4, .offset = 3}}) CHECK(faults(means(t)(local)) == "");
  bad = means({.every = 4})(local);
  bad.consistency["data"].bound = 3;
  check_finds(bad, "no action makes them alike every 3 steps");
  bad = means({.every = 4, .offset = 3, .from = 4})(local);
  bad.consistency["data"].bound = 4;
  check_finds(bad, "no action makes them alike every 4 steps");
  bad = means({.every = 4, .until = 100})(local);
  check_finds(bad, "no action makes them alike");
  bad = local;
  bad.consistency["data"] = {Consistency::Kind::gossip};
  check_finds(bad, "no action makes them mix");
  bad.consistency["data"] = {Consistency::Kind::stale};
  check_finds(bad, "needs a bound");
  bad = means({})(local);
  bad.programs[0].actions.back().on_ready = true;
  check_finds(bad, "only reductions can");
  bad = means({})(local);
  bad.programs[0].actions.back().peer.pairs = "star";
  check_finds(bad, "use ring, directed_ring, torus, exponential, matching, random_target, bipartite or bipartite_ring");
}

TEST_CASE("one rank of those with the same plan checks it, and all refuse it") {
  if (threads_only()) return;
  static std::atomic<int> checks;
  static const ActionRow wrong{.name = "wrong", .fault = [](const Plan&, const Program&, ActionId) {
                                 ++checks;
                                 return std::string("is wrong");
                               }};
  checks = 0;
  const Strategy strategy("wrong", Claim::exact, [](Plan plan) {
    plan = data_parallel()(std::move(plan));
    plan.programs[0].actions.push_back({.kind = wrong});
    return plan;
  });
  std::vector<std::string> said(4);
  World::threads(4, [&](World& world) {
    Mesh mesh(world, {{"data", 4}});
    said[static_cast<std::size_t>(world.rank())] =
        error_of([&] { Step(network(), cross_entropy, Sgd{.lr = 0.1}, mesh, strategy); });
  });
  CHECK(checks == 1);
  for (const std::string& text : said) CHECK_THAT(text, mentions("wrong"));
}

TEST_CASE("strategies that rebuild a plan keep its phases") {
  Plan plan = parallel_chain();
  plan.axes = {{"data", 2}};
  const int phase = add_phase(plan.programs[0], "seldom", {.every = 4});
  for (const Strategy& s : {zero(1), zero(2), zero(3), central_storage()})
    CHECK(s(plan).programs[0].phases.at(static_cast<std::size_t>(phase)).trigger.every == 4);
}

TEST_CASE("a codec's state is as before where gradients were not used") {
  if (threads_only()) return;
  static const Codec rest{.name = "rest",
                          .length = [](const CodecContext& now) { return now.size; },
                          .encode =
                              [](const CodecContext& now, const Tensor& x, const Tensor& wire) {
                                add_into(now.states[0], x);
                                wire.copy_from(now.states[0]);
                              },
                          .decode = [](const CodecContext&, const Tensor& wire, const Tensor& x) { add_into(x, wire); },
                          .states = {{"rest"}}};
  const Strategy strategy =
      data_parallel() | Strategy("rest", Claim::statistical, [](Plan p) { return with_codec(std::move(p), rest); });
  CHECK_NOTHROW(World::threads(2, [&](World& world) {
    Module model = network();
    convert(model, DType::f64);
    initialize(model, 1);
    Step step(model, cross_entropy, Sgd{.lr = 0.1}, world, strategy);
    step(noise(4, world.rank()), labels(4));
    const auto before = step.parameters().state("rest").to_vector();
    check(std::ranges::any_of(before, [](double v) { return v != 0; }), "test", "the codec has not run");
    std::string error;
    try {
      step(Tensor::full({4, 6}, NAN, DType::f64), labels(4));
    } catch (const Error& e) { error = e.what(); }
    check(error.find("loss is nan") != error.npos, "test", "another error: {}", error);
    check(step.parameters().state("rest").to_vector() == before, "test", "the state has changed");
  }));
}

namespace {

/// Adds the number of the step to the state "sum" of the slice, on all ranks alike.
const ActionRow count_up{
    .name = "count_up",
    .access =
        [](const Plan&, const Program&, const Liveness&, const Action& a) {
          return std::vector{Operand{.kind = OperandKind::state, .slice = a.slice, .name = "sum", .written = true}};
        },
    .start =
        [](ActionContext& now) {
          add_into(now.state("sum"),
                   Tensor::full(now.state("sum").shape(), double(now.step + 1), now.state("sum").dtype()));
          return Work();
        }};

Strategy counting(bool replicated) {
  return data_parallel() | Strategy("counting", Claim::exact, [replicated](Plan plan) {
           for (Program& program : plan.programs)
             program.actions.push_back({.kind = count_up, .slice = {0, plan.parameters}});
           plan.state.push_back({.name = "sum", .initial = 0.5, .replicated = replicated, .dtype = DType::f32});
           return plan;
         });
}

}  // namespace

TEST_CASE("state that is alike goes to ranks of another layout with the checkpoint; a rank's own does not") {
  if (threads_only()) return;
  const Temporary folder;
  const auto run = [&](int ranks, const Strategy& strategy, const std::string& from, const std::string& to) {
    return on_ranks(ranks, [&](World& world) {
      Module model = network();
      convert(model, DType::f64);
      initialize(model, 1);
      Step step(model, cross_entropy, Adam{.lr = 0.01}, world, strategy);
      if (!from.empty()) (void)step.load_checkpoint(find_latest(folder.path() + from).value().path);
      for (int i = 0; i < 3; ++i) {
        const auto [begin, end] = share(6, world.rank(), world.size());
        (void)step(noise(6, i).rows(begin, end), labels(6).rows(begin, end)).item();
      }
      if (!to.empty())
        save_checkpoint(folder.path() + to, step.parameters(), step.optimizer(), {.step = step.optimizer().steps()},
                        {.shard = step.checkpoint_shard()});
      const auto& states = step.parameters().states();
      return states.empty() ? -1.0 : states.front().second.rows(0, 1).item();
    });
  };
  const Strategy alike = counting(true), own = counting(false);
  CHECK(run(2, alike, "", "/two") == 0.5 + 1 + 2 + 3);
  CHECK(run(3, alike, "/two", "/three") == 0.5 + 21);
  CHECK(run(1, alike, "/three", "") == 0.5 + 45);
  CHECK(run(2, data_parallel(), "/two", "/without") == -1);  // does without it
  CHECK(run(2, alike, "/without", "") == 0.5 + 7 + 8 + 9);   // and with it, it begins anew
  CHECK(run(2, own, "", "/own") == 0.5 + 6);
  CHECK(run(2, own, "/own", "") == 0.5 + 21);
  CHECK_ERROR(run(3, own, "/own", ""), usage, 2, "data_parallel");
}

}  // namespace test_own_actions
