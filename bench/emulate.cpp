// Emulated beside simulated: the real executor on 8 to 128 ranks that are threads, whose computations sleep for 20 ms
// or more and whose links are as slow as those of a described cluster (tests/support/emulated_links.h), and simulate()
// of the same plan. What differs is what the executor itself takes, and what the simulator has left out.
//   emulate [--ranks 8,16,32,64,128] [--rounds N] [--only TEXT]
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "bench/measure.h"
#include "tests/support/emulation.h"

using namespace trireme;
using namespace trireme::test;

namespace {

/// Nodes of 8 devices. A message of 4,000 bytes takes 1 ms within a node, and 4 ms between two.
Cluster machines(int ranks, double jitter = 0) {
  return {.nodes = {{.count = (ranks + 7) / 8, .devices = 8}},
          .inside = {.latency = 10e-6, .bandwidth = 4e6},
          .between = {.latency = 20e-6, .bandwidth = 1e6},
          .jitter = jitter,
          .seed = 7};
}

/// A case, and what its row says beside strategy and mesh.
struct Row {
  EmulatedCase how;
  std::string about = {};
};

std::vector<Row> without_stages(int ranks) {
  const auto on = [&](const char* strategy, double jitter = 0) {
    return EmulatedCase{.mesh = {{"data", ranks}}, .strategy = strategy, .cluster = machines(ranks, jitter)};
  };
  std::vector<Row> rows = {{on("data_parallel(first_bucket=2000, bucket=4000)"), "a bucket a part"},
                           {on("data_parallel(first_bucket=2000, bucket=4000)", 0.1), "a bucket a part, jitter 0.1"},
                           {on("data_parallel(overlap=false)")},
                           {on("compress(codec=topk, ratio=0.1)")},
                           {on("zero(1)")},
                           {on("zero(2)")},
                           {on("zero(3)")},
                           {on("local_sgd(every=2)")},
                           {on("local_sgd(every=2)", 0.1), "jitter 0.1"},
                           {on("gossip(graph=exponential)")},
                           {on("gossip(graph=ring)")},
                           {on("gossip(graph=ring)", 0.1), "jitter 0.1"}};
  for (const char* mode : {"mode=sync", "mode=async"}) {
    EmulatedCase served = on(mode, 0.1);
    served.strategy = fmt::format("parameter_server({}, servers=2)", mode);
    served.servers = 2;
    rows.push_back({served, "jitter 0.1"});
  }
  EmulatedCase uneven = rows[0].how;  // half of the nodes are slower
  const int half = (ranks + 1) / 2;
  uneven.cluster.nodes = {{.count = 1, .devices = half}, {.count = 1, .devices = half, .speed = 0.8}};
  rows.push_back({uneven, "half of the devices at 0.8 of the speed"});
  return rows;
}

/// On so many stages, with the rest of the ranks along data.
EmulatedCase staged(int ranks, int stages, const std::string& schedule, int micro, const char* with = "data_parallel",
                    double jitter = 0) {
  EmulatedCase c{.mesh = {{"pipe", stages}},
                 .strategy = fmt::format("pipeline(micro={}, partition=even, schedule={})", micro, schedule),
                 .cluster = machines(ranks, jitter),
                 .microbatches = micro,
                 .steps = 2};
  if (stages < ranks) {
    c.mesh.insert(c.mesh.begin(), {"data", ranks / stages});
    c.strategy += fmt::format(" | {}", with);
  }
  c.parts = schedule.starts_with("interleaved") ? 2 * stages : stages;
  return c;
}
std::vector<Row> with_stages(int ranks) {
  std::vector<Row> rows = {{staged(ranks, ranks, "gpipe", 8)},
                           {staged(ranks, ranks, "1f1b", 8)},
                           {staged(ranks, ranks, "1f1b", 8), "messages of 10 ms between nodes"},
                           {staged(ranks, ranks, "1f1b", 8, "", 0.1), "jitter 0.1"},
                           {staged(ranks, ranks, "zb-h1", 8)},
                           {staged(ranks, ranks, "zb-h1", 8), "halves of 30 and 10 ms"},
                           {staged(ranks, std::min(ranks, 16), "interleaved, chunks=2", std::min(ranks, 16))},
                           {staged(ranks, std::min(ranks, 16), "2bw", std::min(ranks, 16))},
                           {staged(ranks, std::min(ranks, 32), "pipedream", 1)},
                           {staged(ranks, 4, "1f1b", 8)},
                           {staged(ranks, 4, "1f1b", 8, "data_parallel", 0.1), "jitter 0.1"},
                           {staged(ranks, 4, "gpipe", 8, "zero(1)")},
                           {staged(ranks, 8, "zb-h1", 8, "zero(1)")}};
  rows[2].how.width = 2500;
  rows[5].how.backward_input = 0.03;
  rows[5].how.backward_weight = 0.01;
  rows[8].how.steps = 4;
  return rows;
}

/// What sleeps may come late in the mean, in seconds: a quarter of a task. Where a machine has other things to do,
/// ranks that wait for each other in a long row cannot make up for it.
constexpr double most_lateness = 5e-3;

/// The run whose time is the median, of those in which the machine was not busy, if there are any; in the same order if
/// all were.
EmulatedTimes median_of(const EmulatedCase& c, int rounds) {
  std::vector<EmulatedTimes> all, calm;
  for (int round = 0; round < 3 * rounds && std::ssize(calm) < rounds; ++round) {
    all.push_back(times_of(c));
    if (all.back().lateness <= most_lateness) calm.push_back(all.back());
  }
  auto& of = calm.empty() ? all : calm;
  std::ranges::sort(of, {}, &EmulatedTimes::emulated);
  EmulatedTimes median = of[of.size() / 2];
  median.same_order = std::ranges::all_of(all, &EmulatedTimes::same_order);
  return median;
}

}  // namespace

int emulate_main(int argc, char** argv) {
  std::map<std::string, std::string> o{{"--ranks", "8,16,32,64,128"}, {"--rounds", "1"}, {"--only", ""}};
  for (int i = 1; i + 1 < argc; i += 2) o[argv[i]] = argv[i + 1];
  const int rounds = std::max(1, std::stoi(o["--rounds"]));
  fmt::print(
      "{}, {} runs of each case\n\n| ranks | strategy | | simulated, s | emulated, s | difference | order | cores | "
      "sleeps late, ms |\n",
      cpu_name(), rounds);
  fmt::print("| ---: | --- | --- | ---: | ---: | ---: | --- | ---: | ---: |\n");
  std::vector<double> errors;
  int busy = 0;
  std::stringstream counts(o["--ranks"]);
  for (std::string count; std::getline(counts, count, ',');) {
    const int ranks = std::stoi(count);
    std::vector<Row> rows = without_stages(ranks);
    for (const Row& row : with_stages(ranks)) rows.push_back(row);
    for (const Row& row : rows) {
      if (row.how.strategy.find(o["--only"]) == row.how.strategy.npos) continue;
      const EmulatedTimes t = median_of(row.how, rounds);
      busy += t.lateness > most_lateness;
      if (t.lateness <= most_lateness) errors.push_back(std::abs(t.error()));
      std::string about = row.about, strategy = row.how.strategy;
      if (const auto bar = strategy.find('|'); bar != strategy.npos) strategy.insert(bar, "\\");  // in a table
      if (row.how.mesh.size() > 1)
        about =
            fmt::format("{} x {}{}{}", row.how.mesh[0].size, row.how.mesh[1].size, about.empty() ? "" : ", ", about);
      fmt::print("| {} | {} | {} | {:.3f} | {:.3f} | {:+.2f} % | {} | {:.2f} | {:.1f}{} |\n", ranks, strategy, about,
                 t.simulated, t.emulated, 100 * t.error(), t.same_order ? "same" : "differs", t.processor,
                 1e3 * t.lateness, t.lateness > most_lateness ? ", busy" : "");
      std::fflush(stdout);
    }
  }
  if (errors.empty()) return 1;
  std::ranges::sort(errors);
  fmt::print(
      "\n{} cases: median {:.2f} %, 95th percentile {:.2f} %, largest {:.2f} %; {} more while the machine was busy\n",
      errors.size(), 100 * errors[errors.size() / 2], 100 * errors[errors.size() * 95 / 100], 100 * errors.back(),
      busy);
  return 0;
}
