// What simulating a step takes for many ranks, and checking a long plan: seconds of this program, not of the ranks.
#include <fmt/format.h>

#include <chrono>
#include <ctime>

#include "bench/measure.h"
#include "parallel/analysis/simulate.h"
#include "parallel/strategies/strategy.h"

using namespace trireme;

namespace {

/// Parts that are alike, of a network of 25 million parameters.
std::vector<PartInfo> parts(int n) {
  std::vector<PartInfo> all;
  const Index each = 25000000 / n;
  for (int i = 0; i < n; ++i)
    all.push_back({.name = fmt::format("{}", i),
                   .slice = {i * each, (i + 1) * each},
                   .cost = {.forward = 1e-3, .backward_input = 1e-3, .backward_weight = 1e-3, .output = 1 << 20}});
  return all;
}

void report(const char* what, const Plan& plan, const SimulateOptions& options) {
  const std::clock_t cpu = std::clock();
  const auto start = std::chrono::steady_clock::now();
  const Simulation s = simulate(plan, options);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::size_t actions = 0;
  for (const Program& program : plan.programs) actions = std::max(actions, program.actions.size());
  fmt::print(
      "{:<44} {:>7} ranks {:>5} actions each {:>8}: {:.3f} s, {:.3f} s of a core (a step of {:.4f} s, bubble {:.3f})\n",
      what, options.cluster->devices(), actions, s.folded ? "folded" : "unfolded", took.count(),
      static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC, s.makespan, s.bubble);
}

/// What check() takes for a plan with many actions.
void report_check(const std::string& strategy, const std::vector<Axis>& mesh) {
  const Plan plan = parse_strategy(strategy)(serial(parts(80), 25000000, 0, mesh));
  std::size_t actions = 0;
  for (const Program& program : plan.programs) actions += program.actions.size();
  std::vector<double> times;
  for (int round = 0; round < 5; ++round) {
    const auto start = std::chrono::steady_clock::now();
    const auto faults = check(plan, plan.size(plan.reduced_axis()));
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    check(faults.empty(), "bench", "'{}' is unsound: {}", strategy, faults.empty() ? "" : faults[0]);
  }
  fmt::print("check of 80 parts under {:<40} {:>7} actions: {:.3f} s\n", strategy, actions, median(times));
}

}  // namespace

int simulate_main(int, char**) {
  report_check("accumulate(micro=64) | data_parallel", {{"data", 8}});
  report_check("accumulate(micro=64) | zero(3)", {{"data", 8}});
  report_check("pipeline(micro=1024)", {{"pipe", 8}});
  Cluster cluster{.nodes = {{.count = 2048, .devices = 8}}, .inside = {2e-6, 300e9}, .between = {1e-5, 25e9}};
  for (int microbatches : {16, 64}) {
    const Plan deep = (pipeline({.micro = microbatches, .schedule = "1f1b", .partition = "even"}) |
                       data_parallel())(serial(parts(64), 25000000, 0, {{"data", 64}, {"pipe", 16}, {"tensor", 16}}));
    fmt::print("64 x 16 x 16, {} micro-batches\n", microbatches);
    report("  data x pipe x tensor", deep, {.cluster = cluster, .folding = Folding::folded});
    report("  the same", deep, {.cluster = cluster, .folding = Folding::unfolded});
    Cluster uneven = cluster;
    uneven.nodes = {{.count = 1024, .devices = 8, .speed = 1}, {.count = 1024, .devices = 8, .speed = 0.9}};
    uneven.jitter = 0.1;
    report("  nodes of two speeds, jitter", deep, {.cluster = uneven});
  }
  cluster.nodes = {{.count = 12500, .devices = 8}};
  const Plan wide = data_parallel()(serial(parts(20), 25000000, 0, {{"data", 100000}}));
  report("data", wide, {.cluster = cluster, .folding = Folding::folded});
  report("the same", wide, {.cluster = cluster, .folding = Folding::unfolded});
  cluster.jitter = 0.1;
  report("jitter", wide, {.cluster = cluster});
  return 0;
}
