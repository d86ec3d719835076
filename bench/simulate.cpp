// What simulating a step takes for many ranks: seconds of this program, not of the ranks.
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

}  // namespace

int simulate_main(int, char**) {
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
