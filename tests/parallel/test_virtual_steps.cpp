// A step in virtual time beside the simulated one: the same plan, carried out and only reckoned, takes the same time.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "framework/layers/layers.h"
#include "parallel/analysis/simulate.h"
#include "parallel/comm/virtual_clock.h"
#include "parallel/runtime/step.h"
#include "tests/parallel/pairs.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

using namespace trireme;
using namespace trireme::test;

namespace {

constexpr Index rows = 2;  // of a micro-batch on a rank

Module network() { return Sequential{Conv2d(1, 4, 3), relu, MaxPool(2), flatten, Linear(36, 8), relu, Linear(8, 5)}; }

/// Two nodes, on which the ranks' devices differ in speed, or do not.
Cluster cluster(int ranks, bool alike, double jitter = 0) {
  const int half = (ranks + 1) / 2;
  return {.nodes = {{.devices = half}, {.devices = half, .speed = alike ? 1 : 0.7}},
          .inside = {.latency = 2e-6, .bandwidth = 2e9},
          .between = {.latency = 2e-6, .bandwidth = alike ? 2e9 : 5e8},
          .jitter = jitter,
          .seed = 3,
          .flops = 1e9};
}

struct Times {
  Nanoseconds real_effects = 0, simulated = 0;
};
/// The second step (the first one's messages announce shapes), from a moment at which all ranks have the same clock.
Times times_of(const Arrangement& how, const Cluster& machines) {
  Times times;
  World::virtual_time(how.ranks(), machines, [&](World& world) {
    Mesh mesh(world, how.mesh);
    const Strategy strategy = parse_strategy(how.strategy);
    Index batch = rows * how.microbatches;
    for (const Axis& a : how.mesh)
      if (a.name == "data") batch *= a.size;
    const Tensor example = Tensor::zeros({rows, 8, 8, 1}, DType::f64);
    Module model = network();
    convert(model, DType::f64);
    Step step(model, cross_entropy, Sgd{.lr = 0.1}, mesh, strategy, {.example = example});
    const Index mine = batch / step.shard().size;
    Tensor x = Tensor::full({mine, 8, 8, 1}, 0.5, DType::f64);
    Tensor y = Tensor::zeros({mine}, DType::i64);
    BatchContext context;
    context.global_batch = batch, context.share = step.shard();
    context.samples = Tensor::empty({mine}, DType::i64);
    for (Index i = 0; i < mine; ++i) context.samples.data<std::int64_t>()[i] = step.shard().rank * mine + i;
    x = x.with_batch(context);
    step(x, y);
    world.comm().barrier();
    const Nanoseconds begin = world.clock()->now();
    step(x, y);
    const Tensor end = Tensor::full({1}, static_cast<double>(world.clock()->now()), DType::i64);
    world.comm().all_reduce(end, ReduceOp::max).wait();
    if (world.rank() > 0) return;
    times.real_effects = *end.data<std::int64_t>() - begin;
    const Simulation s = simulate(step.plan(), {.cluster = machines, .element = 8, .step = 1});
    times.simulated = std::llround(s.makespan * 1e9);
  });
  return times;
}

}  // namespace

TEST_CASE(
    "every strategy and pair takes as long in virtual time as simulated, to the nanosecond but for divided layers") {
  if (threads_only()) return;
  const auto table = strategy_texts();
  std::map<std::string, int> outcomes;
  const auto compare = [&](const Arrangement& how) {
    for (const bool alike : {true, false}) {
      INFO(how.text() << (alike ? ", equal devices" : ", devices that differ"));
      try {
        const Times t = times_of(how, cluster(how.ranks(), alike, alike ? 0 : 0.2));
        const double off = std::abs(static_cast<double>(t.real_effects) / static_cast<double>(t.simulated) - 1);
        // Where layers talk, the simulator has it in front of each part's computation, a run where a segment of parts
        // comes to it: ranks that differ wait for each other at other moments.
        const bool talks = std::ranges::any_of(std::array{"spatial", "tensor", "one_weird"}, [&](const char* name) {
          return how.strategy.find(name) != how.strategy.npos;
        });
        CHECK(off <= (!talks ? 0 : alike ? 0.03 : 0.1));
        CHECK(t.simulated > 0);
        ++outcomes["compared"];
      } catch (const Error& e) {
        INFO(e.what());
        CHECK(known_refusal(e.what()) != "");
        ++outcomes["refused"];
      }
    }
  };
  for (auto& a : table) {
    compare({{{a.axis.empty() ? "data" : a.axis, a.axis.empty() ? 1 : 2}}, a.text, a.microbatches});
    for (auto& b : table) compare(smallest(a, b));
  }
  CHECK(outcomes["compared"] > 200);
}
