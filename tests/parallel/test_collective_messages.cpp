// Collectives as single messages: on alike nodes of one device they take what the closed forms say, and what algorithms
// cost; where nodes share their way out they do not.
#include "parallel/analysis/collective_messages.h"

#include <numeric>
#include <random>

#include "parallel/analysis/simulate.h"
#include "parallel/strategies/strategy.h"
#include "tests/support/catch.h"

namespace test_collective_messages {

using namespace trireme;
using trireme::test::contains;

namespace {

constexpr CallKind kinds[] = {CallKind::all_reduce, CallKind::reduce_scatter, CallKind::all_gather, CallKind::broadcast,
                              CallKind::reduce};

/// Numbers that follow from a seed.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : draw_(seed) {}
  int below(int n) { return static_cast<int>(draw_() % static_cast<std::uint64_t>(n)); }

 private:
  std::mt19937_64 draw_;
};

std::vector<int> first_ranks(int n) {
  std::vector<int> all(static_cast<std::size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}
Nanoseconds time_of(const Cluster& c, const std::vector<int>& group, CallKind kind, Index bytes,
                    const std::string& algorithm = "ring") {
  return CollectiveMessages(c, static_cast<int>(group.size()), algorithm).times({group}, kind, bytes).front();
}
std::vector<PartInfo> parts_of(int n) {
  std::vector<PartInfo> parts;
  for (Index i = 0; i < n; ++i)
    parts.push_back({.name = std::to_string(i),
                     .slice = {i * 1000, (i + 1) * 1000},
                     .cost = {.forward = 1e-5, .backward_input = 1e-5, .backward_weight = 1e-5, .output = 4000}});
  return parts;
}

}  // namespace

TEST_CASE("on alike nodes of one device messages take what the closed forms say, to the nanosecond") {
  Numbers numbers(3);
  for (int c = 0; c < 60; ++c) {
    const int p = c == 0 ? CollectiveMessages::most_ranks : 2 + numbers.below(40);
    const Link link{1e-9 * numbers.below(100000), numbers.below(5) ? 1e6 * (1 + numbers.below(100000)) : 0,
                    0.25 + 0.05 * numbers.below(16), 1 + 0.5 * numbers.below(5)};
    const Index bytes = numbers.below(100'000'000);
    CAPTURE(p, link.latency, link.bandwidth, link.efficiency, link.oversubscription, bytes);
    // On nodes of their own; or inside of one, which has no other devices.
    const Cluster one{.nodes = {{.devices = p}}, .inside = link, .between = {}};
    for (const Cluster& cluster : {flat_cluster(p, link), one})
      for (const CallKind kind : kinds) {
        CAPTURE(name_of(kind));
        // A chain inside of a node has one message less than there are devices: it gets more of what they share.
        const bool chain = kind == CallKind::broadcast || kind == CallKind::reduce;
        if (chain && cluster.nodes.front().devices > 1) continue;
        const Nanoseconds form = collective_time(link, kind, p, bytes),
                          got = time_of(cluster, first_ranks(p), kind, bytes);
        CHECK(std::abs(got - form) <= 1);
      }
  }
}

TEST_CASE("other algorithms take what their schedules cost") {
  Numbers numbers(4);
  for (int c = 0; c < 20; ++c) {
    const int p = 2 + numbers.below(40);
    const Link link{1e-9 * numbers.below(100000), 1e6 * (1 + numbers.below(100000))};
    const Index bytes = Index{p} * p * numbers.below(20000);
    for (const std::string& name : collectives::algorithm_names()) {
      CAPTURE(p, name, bytes);
      const double price = collectives::cost(collectives::find_algorithm(name), CallKind::all_reduce, p, bytes,
                                             {.latency = link.latency, .per_byte = link.per_byte()});
      CHECK(std::abs(
                static_cast<double>(time_of(flat_cluster(p, link), first_ranks(p), CallKind::all_reduce, bytes, name)) -
                price * 1e9) <= 1 + price * 1e9 * 1e-5);
    }
  }
}

TEST_CASE("where the closed form is wrong: nodes that share their way out") {
  const Link inside{2e-6, 300e9}, between{5e-6, 25e9, 1, 8};
  const Cluster c{.nodes = {{.count = 16, .devices = 8}}, .inside = inside, .between = between};
  const Index bytes = 100'000'000;
  const auto ring = [&](const Cluster& on) { return time_of(on, first_ranks(128), CallKind::all_reduce, bytes); };
  const Nanoseconds form = collective_time(between, CallKind::all_reduce, 128, bytes);
  // Node by node one rank of each sends to another node, and has all of the way out that a device can use.
  Link alone = between;
  alone.oversubscription = 1;
  CHECK(std::abs(ring(c) - collective_time(alone, CallKind::all_reduce, 128, bytes)) <= 1);
  // Dealt in turn all of them do, as the closed form has it.
  Cluster dealt = c;
  dealt.cyclic = true;
  CHECK(std::abs(ring(dealt) - form) <= 1);
  // So they do where each device of a node is in a ring of its own.
  std::vector<std::vector<int>> rails(8);
  for (int r = 0; r < 128; ++r) rails[static_cast<std::size_t>(r % 8)].push_back(r);
  for (const Nanoseconds time : CollectiveMessages(c, 128, "ring").times(rails, CallKind::all_reduce, bytes))
    CHECK(std::abs(time - collective_time(between, CallKind::all_reduce, 16, bytes)) <= 1);
  // A node with fewer devices has a narrower way out, and holds all up.
  Cluster uneven = c;
  uneven.nodes = {{.count = 15, .devices = 8}, {.count = 8, .devices = 1}};
  CHECK(std::abs(ring(uneven) - form) <= 1);
  CHECK(ring(uneven) > 5 * ring(c));
  // A tree that knows nothing of nodes.
  CHECK(time_of(c, first_ranks(128), CallKind::all_reduce, bytes, "tree") > ring(c));
}

TEST_CASE("a plan's collectives by messages: as the closed form where that is right") {
  for (const char* strategy :
       {"data_parallel", "zero(1)", "zero(3)", "pipeline(micro=4, partition=even) | data_parallel"}) {
    const bool stages = std::string(strategy).starts_with("pipe");
    const std::vector<Axis> mesh =
        stages ? std::vector<Axis>{{"pipe", 4}, {"data", 6}} : std::vector<Axis>{{"data", 12}};
    const Plan plan = parse_strategy(strategy)(serial(parts_of(8), 8000, 0, mesh));
    CAPTURE(strategy);
    SimulateOptions options{.cluster = flat_cluster(ranks_of(mesh), {1e-6, 1e9}), .folding = Folding::unfolded};
    const Simulation closed = simulate(plan, options);
    options.collectives = "ring";
    options.folding = Folding::automatic;
    const Simulation messages = simulate(plan, options);
    CHECK(!messages.folded);
    CHECK(messages.makespan ==
          Approx(closed.makespan).epsilon(0).margin(1e-9 * static_cast<double>(closed.timeline.spans.size())));
    CHECK(messages.traffic.size() == closed.traffic.size());
    // Two nodes whose devices share a way out: a ring along the data axis crosses it once.
    options.cluster = Cluster{
        .nodes = {{.count = 2, .devices = ranks_of(mesh) / 2}}, .inside = {1e-6, 1e9}, .between = {1e-6, 1e9, 1, 4}};
    const double few = simulate(plan, options).makespan;
    options.collectives = "";
    CHECK((stages ? few <= simulate(plan, options).makespan : few < simulate(plan, options).makespan));
  }
}

TEST_CASE("collectives by messages are refused where they would take long, or mean nothing") {
  CHECK_ERROR(CollectiveMessages(flat_cluster(300), 300, "ring"), usage, 256, 300);
  CHECK_ERROR(CollectiveMessages(flat_cluster(2), 2, "rings"), usage, "all_reduce", "ring");
  Link measured;
  measured.measured = {{CallKind::all_reduce, 2, 10, 1}};
  CHECK_ERROR(CollectiveMessages(flat_cluster(2, measured), 2, "ring"), usage, "simulate");
  const Plan plan = data_parallel()(serial(parts_of(2), 2000, 0, {{"data", 257}}));
  CHECK_ERROR(simulate(plan, {.collectives = "ring"}), usage, "simulate", 257);
  CHECK_ERROR(simulate(plan, {.folding = Folding::folded, .collectives = "ring"}), usage, "simulate");
}

}  // namespace test_collective_messages
