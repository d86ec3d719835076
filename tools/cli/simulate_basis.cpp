#include "tools/cli/simulate_basis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/core/runtime.h"
#include "parallel/analysis/draw.h"
#include "parallel/comm/world/rank_grid.h"
#include "parallel/search/search.h"
#include "tools/training/cluster_file.h"

namespace trireme {

Cluster cluster_of(const TrainerOptions& config, int ranks) {
  if (!config.parallel.cluster.empty()) return read_cluster(config.parallel.cluster);
  Cluster all;
  all.nodes = {{.count = (ranks + cores() - 1) / cores(), .devices = cores()}};
  all.name = "machines like this one";
  return all;
}

Cluster cluster_of(const TrainerOptions& config, const DescribedPlan& d, int ranks) {
  Cluster all = cluster_of(config, ranks);
  if (!config.parallel.cluster.empty()) return all;
  if (!d.calls.empty()) {
    all.inside = all.between = link_of(d.calls);
    all.overlaps = false;
  }
  all.jitter = d.jitter;
  return all;
}

std::string in_words(const Cluster& c) {
  std::string nodes;
  for (const NodeGroup& g : c.nodes)
    nodes +=
        fmt::format("{}{} node{} of {} device{}{}", nodes.empty() ? "" : ", ", g.count, g.count == 1 ? "" : "s",
                    g.devices, g.devices == 1 ? "" : "s", g.speed == 1 ? "" : fmt::format(" of speed {}", g.speed));
  return (c.name.empty() ? "" : c.name + ": ") + nodes;
}

void check_room(const Cluster& cluster, const std::vector<Axis>& mesh) {
  if (const int ranks = ranks_of(mesh), devices = cluster.devices(); ranks > devices)
    throw OptionError(fmt::format("mesh {}: {} ranks on a cluster of {} devices ({}); use a smaller mesh, or add nodes",
                                  to_string(mesh), ranks, devices, in_words(cluster)));
}

PredictionBasis basis_of(const DescribedPlan& d, const Cluster& cluster, int ranks) {
  PredictionBasis b;
  b.numbers.push_back({"costs of layers", d.cost_source(), d.cost_in_words()});
  if (!d.profile)
    b.numbers.push_back({"loss and update", Source::assumed, "take no time; a machine file has their times"});
  if (d.beside.extrapolated) b.beyond.push_back(d.cost + " was measured with other numbers of rows");
  // In a described cluster, the speed of its devices relative to the measured machine is an assumption of the cluster
  // file.
  const bool described = !d.model.settings.parallel.cluster.empty() && d.is_timed();
  int before = 0;
  for (const NodeGroup& g : cluster.nodes) {
    if ((cluster.cyclic || before < ranks) && (described || g.speed != 1))
      b.numbers.push_back({fmt::format("devices of speed {:g}", g.speed), g.source,
                           described ? "1 being where the costs of layers were measured" : ""});
    before += g.count * g.devices;
  }
  const auto add = [&](const char* what, const Link& link) {
    const bool free = link.latency == 0 && link.bandwidth == 0 && link.measured.empty();
    b.numbers.push_back({what, link.source, free ? "take no time" : ""});
    int most = 0;
    for (const MeasuredCall& c : link.measured) most = std::max(most, c.ranks);
    if (most > 0 && ranks > most) b.beyond.push_back(fmt::format("calls were measured among {} ranks at most", most));
  };
  const UsedLinks used = used_links(cluster, ranks);
  if (used.inside) add("links inside nodes", cluster.inside);
  if (used.between) add("links between nodes", cluster.between);
  for (const auto& [what, source, note] : b.numbers)
    if (source == Source::assumed && !(d.beside.extrapolated && what == b.numbers.front().what))
      b.beyond.push_back(what + " are assumed");
  std::ranges::sort(b.beyond);
  b.beyond.erase(std::ranges::unique(b.beyond).begin(), b.beyond.end());
  b.weakest = b.beyond.empty() ? Source::measured : Source::assumed;
  for (const PredictionBasis::Number& n : b.numbers) b.weakest = std::max(b.weakest, n.source);
  b.jitter = d.profile ? std::max(d.jitter, cluster.jitter) : 0;
  b.heldout = d.profile ? heldout_error(*d.profile) : 0;
  b.band = error_band(b.weakest, b.jitter, b.heldout);
  b.below = 1 - std::min(1 - std::min(0.9, error_band(b.weakest, 0, b.heldout)), std::exp(-2 * b.jitter));
  b.busy = d.busy;
  return b;
}

std::string PredictionBasis::range(double seconds) const {
  return fmt::format("{} to {}", time_text(seconds * (1 - below)), time_text(seconds * (1 + band)));
}

std::string PredictionBasis::table() const {
  std::string text = "where the numbers come from\n";
  for (const auto& [what, source, note] : numbers)
    text += fmt::format("  {:<22} {}{}{}\n", what, to_string(source), note.empty() ? "" : ", ", note);
  text += fmt::format("weakest source: {}; predicted times may be off by {:.0f} %", to_string(weakest), 100 * band);
  if (band > error_band(weakest))
    text += fmt::format(": {}", band == heldout ? "the error of measurements that were left out"
                                                : fmt::format("measured durations spread by {:.1f} %", 100 * jitter));
  text += '\n';
  if (!busy.empty()) text += fmt::format("the machine file is of a busy machine: {}\n", busy);
  return beyond.empty() ? text : text + fmt::format("extrapolated: {}\n", fmt::join(beyond, "; "));
}

std::string memory_verdict(const Cluster& cluster, const Plan& plan, const std::vector<RankMemory>& memory) {
  if (std::ranges::all_of(cluster.nodes, [](const NodeGroup& g) { return g.memory == 0; }))
    return "the cluster file gives no memory of devices (nodes.memory), so it is not known whether ranks fit\n";
  const auto memory_of = [&](int node) {
    std::size_t group = 0;
    for (; node >= cluster.nodes[group].count; ++group) node -= cluster.nodes[group].count;
    return cluster.nodes[group].memory;
  };
  const RankGrid grid(plan.axes);
  const std::size_t stages = grid.find(plan.stage_axis);
  constexpr double none = std::numeric_limits<double>::infinity();
  std::vector<double> least(plan.programs.size(), none);
  for (int rank = 0; rank < grid.size(); ++rank) {
    const int program =
        !plan.programs.front().where.empty()
            ? plan.program_at([&](const std::string& axis) { return grid.coordinate(rank, grid.find(axis)); })
        : plan.programs.size() == 1 ? 0
                                    : grid.coordinate(rank, stages);
    if (const double has = memory_of(cluster.node_of(rank)); has > 0) least[program] = std::min(least[program], has);
  }
  const auto in_words = [](double bytes) {
    return bytes < 1e9 ? fmt::format("{:.2f} MB", bytes / 1e6) : fmt::format("{:.2f} GB", bytes / 1e9);
  };
  std::string text;
  for (std::size_t r = 0; r < memory.size(); ++r) {
    const auto needs = static_cast<double>(memory[r].total());
    text += fmt::format("{} needs {}", plan.programs[r].name, in_words(needs));
    text += least[r] == none
                ? ": the cluster does not tell what its devices have\n"
                : fmt::format(" of {}: {}\n", in_words(least[r]), needs > least[r] ? "DOES NOT FIT" : "fits");
  }
  return text;
}

}  // namespace trireme
