// Jitter in closed form: order statistics, and the mean of many steps whose jitter was drawn.
#include "parallel/analysis/sim_jitter.h"

#include <cmath>

#include "parallel/analysis/simulate.h"
#include "parallel/strategies/strategy.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace test_sim_jitter {

using namespace trireme;

namespace {

Plan plan_of(const std::string& strategy, const std::vector<Axis>& mesh, int count = 12) {
  std::vector<PartInfo> parts;
  for (Index i = 0; i < count; ++i)
    parts.push_back({.name = std::to_string(i),
                     .slice = {i * 1000, (i + 1) * 1000},
                     .cost = {.forward = 1e-3, .backward_input = 1e-3, .backward_weight = 1e-3, .output = 100}});
  return parse_strategy(strategy)(serial(std::move(parts), 1000 * count, 0, mesh));
}

struct Drawn {
  double mean, error;  // of the mean
};
Drawn drawn(const Plan& plan, SimulateOptions options, int seeds) {
  options.folding = Folding::unfolded;
  options.rows = 1;
  double sum = 0, squares = 0;
  for (int seed = 0; seed < seeds; ++seed) {
    options.cluster->seed = static_cast<std::uint64_t>(seed);
    const double step = simulate(plan, options).makespan;
    sum += step;
    squares += step * step;
  }
  const double mean = sum / seeds;
  return {mean, std::sqrt(std::max(0.0, squares / seeds - mean * mean) / seeds)};
}

}  // namespace

TEST_CASE("the largest of P normal numbers, and of P log-normal ones") {
  // Of a small shape log-normal times are normal. Expected values: Harter, Biometrika 48 (1961).
  for (const auto& [count, expected] : {std::pair{2.0, 0.56419}, {3.0, 0.84628}, {10.0, 1.53875}, {100.0, 2.50759}})
    CHECK(largest_of({1, 1e-12}, count).first == Approx(expected * 1e-6).epsilon(1e-4));
  // The variance of the larger of two is 1 - 1 / pi.
  CHECK(largest_of({1, 1e-12}, 2).second.variance == Approx(0.681690e-12).epsilon(1e-3));
  // The largest of two log-normal numbers of shape s and median 1: 2 exp(s^2 / 2) Phi(s / sqrt 2).
  for (const double s : {0.05, 0.5, 1.0, 2.0, 3.0}) {
    const double mean = std::exp(s * s / 2), variance = mean * mean * std::expm1(s * s);
    CHECK(largest_of({mean, variance}, 2).first == Approx(2 * mean * std::erfc(-s / 2) / 2 - mean).epsilon(1e-5));
    CHECK(largest_of({mean, variance}, 1e5).first > largest_of({mean, variance}, 1e4).first);
  }
  CHECK(largest_of({1, 1}, 1).first == 0);
  CHECK(largest_of({1, 0}, 1e6).first == 0);
  // Of 5 %: 16 and 22 % for normal times of 1,024 and 131,072 ranks, somewhat more for log-normal ones.
  const double variance = std::exp(0.0025) * std::expm1(0.0025);
  CHECK(largest_of({std::exp(0.00125), variance}, 1024).first == Approx(0.174).margin(0.005));
  CHECK(largest_of({std::exp(0.00125), variance}, 131072).first == Approx(0.248).margin(0.005));
}

// One program within 0.5 % of the mean (beyond four errors of it) at jitter 0.05, stages within
// 1.5 %: times of neighbours are taken as independent, which overstates how long they wait for each other.
TEST_CASE("the closed form is the mean of steps whose jitter is drawn") {
  struct Case {
    std::string strategy;
    std::vector<Axis> mesh;
    int parts;
    double tolerance;
  };
  std::vector<Case> cases;
  for (const int p : {2, 8, 64, 256})
    for (const char* strategy :
         {"data_parallel", "data_parallel(first_bucket=2000, bucket=4000)", "zero(1)", "zero(3)"})
      cases.push_back({strategy, {{"data", p}}, 12, 0.005});
  cases.push_back({"data_parallel(overlap=false)", {{"data", 16}}, 1, 0.005});
  for (const int data : {1, 2, 16})
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1"})
      cases.push_back({std::string("pipeline(micro=8, partition=even, schedule=") + schedule + ") | data_parallel",
                       {{"pipe", 4}, {"data", data}},
                       8,
                       0.015});
  cases.push_back({"pipeline(micro=8, partition=even) | zero(2)", {{"pipe", 2}, {"data", 32}}, 8, 0.015});
  for (const Case& c : cases) {
    const int ranks = ranks_of(c.mesh);
    if (test::brief() && ranks > 16) continue;
    const Plan plan = plan_of(c.strategy, c.mesh, c.parts);
    for (const int steps : {1, 3}) {
      SimulateOptions options{.cluster = flat_cluster(ranks, {1e-5, 1e9}), .steps = steps};
      options.cluster->jitter = 0.05;
      const Drawn all = drawn(plan, options, std::clamp(1500 / ranks / steps, 10, 200));
      options.folding = Folding::folded;
      const Simulation expected = simulate(plan, options);
      CAPTURE(c.strategy, to_string(c.mesh), steps, all.mean, all.error, expected.makespan);
      CHECK(expected.expected);
      CHECK(std::abs(expected.makespan - all.mean) < c.tolerance * all.mean + 4 * all.error);
      options.cluster->jitter = 0;
      CHECK(expected.makespan > simulate(plan, options).makespan);
    }
  }
}

TEST_CASE("ranks that wait for each other while they communicate, devices of another speed, two axes") {
  SimulateOptions options{.cluster = flat_cluster(16, {1e-5, 1e9})};
  options.cluster->jitter = 0.1;
  options.cluster->overlaps = false;
  const auto check_mean = [&](const Plan& plan, double tolerance) {
    const Drawn all = drawn(plan, options, 100);
    options.folding = Folding::folded;
    CHECK(std::abs(simulate(plan, options).makespan - all.mean) < tolerance * all.mean + 4 * all.error);
  };
  check_mean(plan_of("data_parallel", {{"data", 16}}), 0.005);
  check_mean(plan_of("pipeline(micro=4, partition=even) | data_parallel", {{"pipe", 4}, {"data", 4}}, 8), 0.03);
  for (NodeGroup& g : options.cluster->nodes) g.speed = 0.5;
  check_mean(plan_of("zero(1)", {{"data", 16}}), 0.005);
}

TEST_CASE("automatic folding draws jitter up to 256 ranks, and takes 100,000 ranks in closed form") {
  const auto run = [](int ranks, Folding folding) {
    SimulateOptions options{.cluster = flat_cluster(ranks, {1e-6, 1e9}), .folding = folding};
    options.cluster->jitter = 0.05;
    return simulate(plan_of("data_parallel", {{"data", ranks}}), options);
  };
  const Simulation drawn = run(most_drawn, Folding::automatic), expected = run(most_drawn + 1, Folding::automatic);
  CHECK(!drawn.folded);
  CHECK(!drawn.expected);
  CHECK(expected.folded);
  CHECK(expected.expected);
  CHECK(!run(most_drawn + 1, Folding::unfolded).expected);
  const Simulation many = run(100000, Folding::automatic);
  CHECK(many.expected);
  CHECK(many.makespan > expected.makespan);
  // Ranks that exchange messages by rules are simulated one by one.
  SimulateOptions options{.cluster = flat_cluster(4), .folding = Folding::folded};
  options.cluster->jitter = 0.05;
  CHECK_ERROR(simulate(plan_of("gossip", {{"data", 4}}), options), usage, "simulate");
}

}  // namespace test_sim_jitter
