// The simulator of programs at ranges of ranks: groups that meet among themselves, and servers and their workers.
#include "parallel/analysis/draw.h"
#include "parallel/analysis/simulate.h"
#include "parallel/async/channel_plan.h"
#include "parallel/model/planned_traffic.h"
#include "parallel/strategies/strategy.h"
#include "tests/support/catch.h"

namespace test_simulate_servers {

using namespace trireme;
using namespace trireme::test;

namespace {

Plan base(int ranks) {
  std::vector<PartInfo> parts;
  for (Index i = 0; i < 4; ++i)
    parts.push_back({.name = std::to_string(i),
                     .slice = {i * 100, (i + 1) * 100},
                     .cost = {.forward = 1e-6, .backward_input = 1e-6, .backward_weight = 2e-6}});
  return serial(parts, 400, 0, {{"data", ranks}});
}

Cluster machines(int ranks, double jitter = 0) {
  Cluster c = flat_cluster(ranks, {1e-6, 1e9});
  c.jitter = jitter;
  c.seed = 7;
  return c;
}

/// When the nth action of a kind and field began in each step of a rank.
std::vector<double> times_of(const Plan& plan, const Simulation& s, int rank, ActionKind kind, const std::string& field,
                             double Span::*when) {
  const auto& actions = plan.programs[s.timeline.programs[rank]].actions;
  const auto is = [&](const Action& a) { return a.kind == kind && payload_of(a) == field; };
  const auto first = std::ranges::find_if(actions, is) - actions.begin();
  std::vector<double> times;
  for (const Span& span : s.timeline.spans)
    if (span.rank == rank && span.action == first) times.push_back(span.*when);
  return times;
}

}  // namespace

TEST_CASE("programs at ranges of ranks do their collectives among themselves") {
  for (int a = 1; a <= 4; ++a)
    for (int b = 1; b <= 4; ++b) {
      CAPTURE(a, b);
      Plan both = data_parallel({.first_bucket = 100, .bucket = 100})(base(a + b));
      both.programs.push_back(both.programs[0]);
      both.programs[0].where = {{"data", 0, a}};
      both.programs[1].where = {{"data", a, a + b}};
      const Simulation s = simulate(both, {.cluster = machines(a + b)});
      CHECK(!s.folded);
      for (int r = 0; r < a + b; ++r) {
        const int ranks = r < a ? a : b;
        Plan one = both;
        one.programs.resize(1);
        one.programs[0].where.clear();
        one.axes = {{"data", ranks}};
        const Simulation alone = simulate(one, {.cluster = machines(ranks), .folding = Folding::unfolded});
        std::vector<std::pair<double, double>> mine, its;
        for (const Span& span : s.timeline.spans)
          if (span.rank == r) mine.push_back({span.begin, span.end});
        for (const Span& span : alone.timeline.spans)
          if (span.rank == 0) its.push_back({span.begin, span.end});
        CHECK(mine == its);
        CHECK(s.timeline.programs[r] == (r < a ? 0 : 1));
      }
    }
}

TEST_CASE("the bytes of servers and workers are those of the planned traffic, in each step") {
  for (int workers = 1; workers <= 5; ++workers)
    for (int servers = 1; servers <= 3; ++servers)
      for (const ParameterServerOptions& o :
           {ParameterServerOptions{.servers = servers}, ParameterServerOptions{.servers = servers, .mode = "async"},
            ParameterServerOptions{.servers = servers, .mode = "ssp", .staleness = 1},
            ParameterServerOptions{.servers = servers, .mode = "async", .groups = workers % 2 == 0 ? 2 : 1}}) {
        const int ranks = workers + servers + o.groups;
        const Plan plan = parameter_server(o)(base(ranks));
        const Simulation s = simulate(plan, {.cluster = machines(ranks, 0.5), .steps = 4});
        for (std::size_t r = 0; r < plan.programs.size(); ++r) {
          CAPTURE(workers, servers, o.mode, r);
          CHECK(s.traffic[r].at(0).bytes == 4 * planned_traffic(plan, r).at("data").bytes);
        }
      }
}

TEST_CASE("no worker begins a step before the slowest has come near enough") {
  double most_apart = 0;
  for (const std::int64_t staleness : {0, 1, 2})
    for (int workers = 2; workers <= 6; ++workers) {
      const Plan plan = parameter_server({.mode = "ssp", .staleness = staleness})(base(workers + 1));
      const Simulation s = simulate(plan, {.cluster = machines(workers + 1, 0.8), .steps = 12});
      CAPTURE(staleness, workers);
      for (int fast = 0; fast < workers; ++fast)
        for (int slow = 0; slow < workers; ++slow) {
          const auto begins = times_of(plan, s, fast, ActionKind::forward, "", &Span::begin);
          const auto pushed = times_of(plan, s, slow, ActionKind::send, "gradients", &Span::end);
          REQUIRE(begins.size() == 12);
          REQUIRE(pushed.size() == 12);
          for (std::size_t step = staleness + 1; step < 12; ++step) CHECK(begins[step] >= pushed[step - 1 - staleness]);
          if (staleness == 2) most_apart = std::max(most_apart, pushed[8] - begins[10]);
        }
    }
  CHECK(most_apart > 0);
}

TEST_CASE("plans with servers are not folded, and say why") {
  const Plan plan = parameter_server({})(base(4));
  CHECK(!simulate(plan).folded);
  CHECK_ERROR(simulate(plan, {.folding = Folding::folded}), usage, "simulate");
}

TEST_CASE("a worker whom nobody answers is named") {
  // Two gradients make an update: of 3 workers one is left alone in the end.
  Plan plan = parameter_server({.mode = "async"})(base(4));
  plan.programs[1].phases[0].trigger.count = 2;
  CHECK_ERROR(simulate(plan, {.cluster = machines(4), .steps = 3}), usage, "worker", 0, 400);
  CHECK_ERROR(simulate(plan, {.steps = 0}), usage, "simulate", 0);
}

TEST_CASE("messages on channels are drawn below computations, and waiting for them is not") {
  Plan plan = parameter_server({})(base(2));
  plan.parameters = 400;
  Cluster c = flat_cluster(2, {4e-6, 0});
  const Simulation s = simulate(plan, {.cluster = c, .steps = 2});
  // A step: 16 us of computation, the gradient arrives 4 us later, the answer 4 us after that; the loss behind it.
  CHECK(gantt(plan, s.timeline, 48 + 8 + 9) ==
        "predicted: 48 us, idle 200.0 % of busy time\n"
        "worker   compute F0--B0----------........F0--B0----------........\n"
        "         comm    ................S---S---................S---S---\n"
        "server 1 compute ................................................\n"
        "         comm    ....................S---....................S---\n"
        "F forward, B backward, S send; the number is the micro-batch, a dot is idle time\n");
}

}  // namespace test_simulate_servers
