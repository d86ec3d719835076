// A step in virtual time beside the simulated one: the same plan, carried out and only reckoned, takes the same time.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

#include "framework/layers/layers.h"
#include "parallel/analysis/simulate.h"
#include "parallel/async/channel_plan.h"
#include "parallel/comm/virtual_clock.h"
#include "parallel/plan/action_context.h"
#include "parallel/plan/action_row.h"
#include "parallel/runtime/step.h"
#include "tests/parallel/pairs.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace test_virtual_steps {

using namespace trireme;
using namespace trireme::test;

namespace {

constexpr Index rows = 2;  // of a micro-batch on a rank

Module network() { return Sequential{Conv2d(1, 4, 3), relu, MaxPool(2), flatten, Linear(36, 12), relu, Linear(12, 5)}; }

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

const ActionRow busy{.name = "busy",
                     .seconds = [](const Plan&, const Action&) { return 7e-6; },
                     .start = [](ActionContext&) { return Work(); }};
/// Servers that take time for every update.
Strategy slow_servers(const ParameterServerOptions& o) {
  return parameter_server(o) | Strategy("slow", Claim::exact, [](Plan plan) {
           for (Program& program : plan.programs)
             if (program.serves()) insert(program, 1, {.kind = busy});
           return plan;
         });
}

const ActionRow mean{
    .name = "mean",
    .is_collective = true,
    .access =
        [](const Plan&, const Program&, const Liveness&, const Action& a) {
          return std::vector<Operand>{{.kind = OperandKind::weights, .slice = a.slice, .written = true}};
        },
    .calls =
        [](const Action& a, int, Index element) {
          return std::vector{PlannedCall{CallKind::all_reduce, a.slice.size() * element}};
        },
    .start = [](ActionContext& now) { return now.comm->all_reduce(now.values(), ReduceOp::average); }};
/// Each rank trains for itself; every so many steps weights become their mean.
Strategy meets_now_and_then(int every) {
  Strategy s{"meets", Claim::statistical, [every](Plan plan) {
               Program& all = plan.programs[0];
               Action a{.kind = mean, .slice = {0, plan.parameters}};
               a.peer.axis = "data";
               a.phase = add_phase(all, "mean", {.every = every});
               all.actions.push_back(a);
               plan.consistency["data"] = {Consistency::Kind::periodic, every};
               return plan;
             }};
  s.norm_scope = NormScope::local;
  return s;
}

/// A strategy on a mesh; how many of the ranks along data serve.
struct Case {
  Arrangement how;
  Strategy strategy;
  int servers = 0;
  int steps = 5;
};
struct Times {
  std::vector<Nanoseconds> real_effects, simulated;  // when each rank ended its last step
};
/// When each rank's last action ended, or was handed over where nobody waits for it.
std::vector<Nanoseconds> ends_of(const Plan& plan, const Simulation& s) {
  std::vector<Nanoseconds> ends(s.ranks.size());
  for (const Span& span : s.timeline.spans) {
    const Program& program = plan.programs[s.timeline.programs[span.rank]];
    if (program.serves() && program.actions[span.action].kind == ActionKind::send) continue;
    ends[span.rank] = std::max(ends[span.rank], nanoseconds(span.end));
  }
  return ends;
}
/// Of steps from the second on (a first one's messages announce shapes, but for servers), from a moment at which all
/// ranks have the same clock.
Times times_of(const Case& c, const Cluster& machines) {
  Times times;
  const Arrangement& how = c.how;
  times.real_effects.resize(how.ranks());
  World::virtual_time(how.ranks(), machines, [&](World& world) {
    Mesh mesh(world, how.mesh);
    Index batch = rows * how.microbatches;
    for (const Axis& a : how.mesh)
      if (a.name == "data") batch *= a.size - c.servers;
    const Tensor example = Tensor::zeros({rows, 8, 8, 1}, DType::f64);
    Module model = network();
    convert(model, DType::f64);
    Step step(model, cross_entropy, Sgd{.lr = 0.1}, mesh, c.strategy, {.profile = {.example = example}});
    const Index mine = batch / step.shard().size;
    Tensor x = Tensor::full({mine, 8, 8, 1}, 0.5, DType::f64);
    Tensor y = Tensor::zeros({mine}, DType::i64);
    BatchContext context;
    context.global_batch = batch;
    context.share = step.shard();
    context.samples = Tensor::empty({mine}, DType::i64);
    for (Index i = 0; i < mine; ++i) context.samples.data<std::int64_t>()[i] = step.shard().rank * mine + i;
    x = x.with_batch(context);
    const int first = c.servers > 0 ? 0 : 1;
    for (int i = 0; i < first; ++i) step(x, y);
    step.flush();
    world.comm().barrier();
    const Nanoseconds begin = world.clock()->now();
    for (int i = 0; i < c.steps; ++i) step(x, y);
    times.real_effects[world.rank()] = world.clock()->now() - begin;
    if (world.rank() > 0) return;
    const SimulateOptions options{
        .cluster = machines, .element = 8, .step = first, .steps = c.steps, .folding = Folding::unfolded};
    const Simulation s = simulate(step.plan(), options);
    times.simulated = ends_of(step.plan(), s);
    if (*std::ranges::max_element(times.simulated) != nanoseconds(s.makespan)) times.simulated.clear();
  });
  return times;
}
Nanoseconds last(const std::vector<Nanoseconds>& ends) { return ends.empty() ? 0 : *std::ranges::max_element(ends); }

}  // namespace

TEST_CASE(
    "every strategy and pair takes as long in virtual time as simulated, to the nanosecond but for divided layers") {
  if (threads_only()) return;
  std::map<std::string, int> outcomes;
  const auto compare = [&](const Arrangement& how) {
    for (const bool alike : {true, false}) {
      INFO(how.text() << (alike ? ", equal devices" : ", devices that differ"));
      try {
        // Where layers talk, the simulator has it in front of each part's computation, a run where a segment of parts
        // comes to it: ranks that differ wait for each other at other moments.
        const bool talks = std::ranges::any_of(std::array{"spatial", "tensor", "one_weird"}, [&](const char* name) {
          return how.strategy.find(name) != how.strategy.npos;
        });
        const int servers = how.strategy.find("parameter_server") != how.strategy.npos;
        const Times t = times_of({how, parse_strategy(how.strategy), servers, talks ? 1 : 5},
                                 cluster(how.ranks(), alike, alike ? 0 : 0.2));
        const auto simulated = static_cast<double>(last(t.simulated));
        if (talks)
          CHECK(std::abs(static_cast<double>(last(t.real_effects)) / simulated - 1) <= (alike ? 0.03 : 0.1));
        else
          CHECK(t.real_effects == t.simulated);
        CHECK(simulated > 0);
        ++outcomes["compared"];
      } catch (const Error& e) {
        INFO(e.what());
        CHECK(known_refusal(e.what()) != "");
        ++outcomes["refused"];
      }
    }
  };
  for (auto& a : strategy_texts())
    compare({{{a.axis.empty() ? "data" : a.axis, a.axis.empty() ? 1 : 2}}, a.text, a.microbatches});
  for (auto& [a, b] : strategy_pairs()) compare(smallest(a, b));
  CHECK(outcomes["compared"] > 200);
}

TEST_CASE("servers and their workers take as long in virtual time as simulated, to the nanosecond") {
  if (threads_only()) return;
  const std::vector<ParameterServerOptions> kinds = {{},
                                                     {.mode = "async"},
                                                     {.mode = "ssp", .staleness = 0},
                                                     {.mode = "ssp", .staleness = 1},
                                                     {.mode = "ssp", .staleness = 2},
                                                     {.backup = 1},
                                                     {.backup = 3},
                                                     {.groups = 1},
                                                     {.groups = 2},
                                                     {.mode = "async", .groups = 2},
                                                     {.mode = "ssp", .staleness = 1, .groups = 3}};
  for (int workers = 1; workers <= 6; ++workers)
    for (int count = 1; count <= 3; ++count)
      for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
        ParameterServerOptions options = kinds[kind];
        options.servers = count;
        if (options.backup >= workers || (options.groups > 0 && workers % options.groups != 0)) continue;
        const int serve = count + options.groups;
        const Case c{{{{"data", workers + serve}}, "", 1}, slow_servers(options), serve};
        Cluster at_once = cluster(c.how.ranks(), true);  // what happens at one moment has an order, too
        at_once.inside = {};
        at_once.between.latency = 0;
        std::vector<Cluster> all{cluster(c.how.ranks(), true), cluster(c.how.ranks(), true, 0.3),
                                 cluster(c.how.ranks(), false, 0.2), at_once};
        if (brief()) all = {all[(kind + static_cast<std::size_t>(workers + count)) % all.size()]};
        for (const Cluster& machines : all) {
          CAPTURE(workers, count, kind, machines.jitter, machines.inside.latency);
          const Times t = times_of(c, machines);
          CHECK(t.real_effects == t.simulated);
          CHECK(last(t.simulated) > 0);
        }
      }
}

TEST_CASE("ranks that meet in some steps only take as long in virtual time as simulated, to the nanosecond") {
  if (threads_only()) return;
  for (int ranks = 2; ranks <= 5; ++ranks)
    for (int every = 1; every <= 3; ++every) {
      const Case c{{{{"data", ranks}}, "", 1}, meets_now_and_then(every)};
      const Times t = times_of(c, cluster(ranks, false, 0.3));
      CAPTURE(ranks, every);
      CHECK(t.real_effects == t.simulated);
      CHECK(last(t.simulated) > 0);
    }
}

TEST_CASE("asynchronous pipelines take as long in virtual time as simulated, to the nanosecond") {
  if (threads_only()) return;
  for (const char* schedule : {"2bw", "pipedream"})
    for (int stages = 2; stages <= 3; ++stages)
      for (int data = 1; data <= 2; ++data)
        for (const bool alike : {true, false}) {
          const int micro = schedule == std::string("2bw") ? stages + 1 : 1;
          Strategy strategy = pipeline({.micro = micro, .schedule = schedule, .partition = "even"});
          if (data > 1) strategy = strategy | data_parallel({.first_bucket = 16, .bucket = 40});
          const Case c{{{{"data", data}, {"pipe", stages}}, "", micro}, strategy};
          const Times t = times_of(c, cluster(data * stages, alike, alike ? 0 : 0.2));
          CAPTURE(schedule, stages, data, alike);
          CHECK(t.real_effects == t.simulated);
          CHECK(last(t.simulated) > 0);
        }
}

TEST_CASE("gossip takes as long in virtual time as simulated, to the nanosecond") {
  if (threads_only()) return;
  for (const char* options :
       {"graph=ring", "graph=torus", "graph=exponential", "graph=random", "graph=complete", "graph=ring, mode=push_sum",
        "graph=exponential, mode=push_sum", "graph=random, mode=push_sum", "graph=torus, mode=push_sum",
        "graph=ring, mode=async", "graph=random, mode=async"})
    for (int ranks = 2; ranks <= 7; ++ranks)
      for (const bool alike : {true, false}) {
        if (options == std::string_view("graph=random") && ranks % 2) continue;  // it pairs them off
        if (options == std::string_view("graph=ring, mode=async") && ranks % 2) continue;
        const Case c{{{{"data", ranks}}, "", 1}, parse_strategy(fmt::format("gossip({})", options))};
        const Times t = times_of(c, cluster(ranks, alike, alike ? 0 : 0.3));
        CAPTURE(options, ranks, alike);
        CHECK(t.real_effects == t.simulated);
        CHECK(last(t.simulated) > 0);
      }
}

}  // namespace test_virtual_steps
