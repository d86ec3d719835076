// trireme simulate: what a step of the settings' strategy would take on a cluster. Ranks are described, none is
// started.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/core/runtime.h"
#include "kernels/core/suggest.h"
#include "kernels/core/text.h"
#include "parallel/analysis/chart.h"
#include "parallel/analysis/draw.h"
#include "parallel/comm/world/mesh.h"
#include "tools/cli/described_plan.h"
#include "tools/training/cluster_file.h"

namespace trireme {
namespace {

/// As many machines like this one as the ranks need, a device per core, with links that take no time.
Cluster cluster_of(const PlanOptions& options, int ranks) {
  if (!options.cluster.empty()) return read_cluster(options.cluster);
  Cluster all;
  all.nodes = {{.count = (ranks + cores() - 1) / cores(), .devices = cores()}};
  all.name = "machines like this one";
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

Simulation simulate_on(const Cluster& cluster, const DescribedPlan& d, const Plan& plan) {
  return simulate(plan, {.cluster = cluster, .element = size_of(d.model.parameters.dtype())});
}

/// Rows that all ranks together take in a step.
Index batch_of(const DescribedPlan& d, const Plan& plan) {
  return d.rows * plan.microbatches * size_along(plan.axes, "data");
}

void print_traffic(const Plan& plan, const Simulation& s) {
  fmt::print("\n{:<16} {:<20} {:>14} {:>16}\n", "role", "axis", "link is busy", "bytes per rank");
  for (std::size_t r = 0; r < plan.roles.size(); ++r)
    for (const AxisTraffic& t : s.traffic[r])
      if (t.bytes > 0)
        fmt::print("{:<16} {:<20} {:>14} {:>16}\n", plan.roles[r].name, t.axis, time_text(t.seconds), t.bytes);
}

/// The numbers of "ranks=1,2,4".
std::vector<int> sweep_of(const std::string& text) {
  std::vector<int> all;
  for (const std::string& piece : split_text(text.starts_with("ranks=") ? text.substr(6) : "", ',')) {
    int& ranks = all.emplace_back();
    if (!parse_number(piece, ranks) || ranks < 1)
      throw OptionError(fmt::format("--sweep is '{}'; write for example ranks=1,2,4,8", shortened(text)));
  }
  return all;
}

/// The mesh with as many ranks along data as make so many in all.
std::vector<Axis> with_ranks(std::vector<Axis> mesh, int ranks) {
  const auto data = std::ranges::find(mesh, "data", &Axis::name);
  if (data == mesh.end()) throw OptionError("--sweep varies the axis data, which --mesh does not name");
  data->size = 1;
  const int others = ranks_of(mesh);
  if (ranks % others != 0)
    throw OptionError(fmt::format("--sweep: {} ranks are no multiple of the {} along the other axes", ranks, others));
  data->size = ranks / others;
  return mesh;
}

/// Each rank takes the rows that it takes on the settings' mesh, so that the batch grows with the ranks.
int sweep(const TrainerOptions& config, const PlanOptions& options, DescribedPlan& described) {
  const std::vector<int> counts = sweep_of(options.sweep);
  const Cluster cluster = cluster_of(options, *std::ranges::max_element(counts));
  ChartSeries predicted{"predicted", {}}, ideal{"in proportion", {}, true};
  std::string table = fmt::format("{}, {} rows per micro-batch and rank\n{:>8} {:>10} {:>12} {:>16} {:>10}\n",
                                  in_words(cluster), described.rows, "ranks", "batch", "step", "samples/s", "per rank");
  for (const int ranks : counts) {
    const std::vector<Axis> mesh = with_ranks(described.mesh, ranks);
    const Plan plan = described.model.whole_plan(config, make_strategy(config, ranks), described.parts, mesh);
    const Simulation s = simulate_on(cluster, described, plan);
    const auto batch = static_cast<double>(batch_of(described, plan));
    predicted.points.push_back({ranks, batch / s.makespan});
    const auto& [first_ranks, first] = predicted.points.front();
    ideal.points.push_back({ranks, first * ranks / first_ranks});
    table += fmt::format("{:>8} {:>10} {:>12} {:>16.1f} {:>8.1f} %\n", ranks, batch, time_text(s.makespan),
                         batch / s.makespan, 100 * predicted.points.back().second / ideal.points.back().second);
  }
  fmt::print("{}{}", table, described.caveat());
  const std::string title = fmt::format("{}, {}", config.model, fmt::join(described.plan.strategies, " | "));
  const std::string picture = chart_svg({.title = title,
                                         .x = "ranks",
                                         .y = "samples per second",
                                         .series = {predicted, ideal},
                                         .log_x = true,
                                         .log_y = true});
  if (!options.svg.empty()) write_file(options.svg, picture);
  if (!options.html.empty()) write_file(options.html, svg_page(title, picture, table));
  return 0;
}

}  // namespace

int simulate_command(const TrainerOptions& config, const PlanOptions& options) {
  if (config.parallel.threads > 0)
    set_threads(static_cast<int>(config.parallel.threads));
  else if (options.cluster.empty())
    set_threads(1);  // a device is a core
  const std::vector<Axis> mesh = mesh_axes(config);
  if (!options.sweep.empty()) (void)sweep_of(options.sweep);
  const Cluster cluster = cluster_of(options, ranks_of(mesh));
  DescribedPlan described(config, mesh, options.cost);
  if (!options.sweep.empty()) return sweep(config, options, described);
  const Plan& plan = described.plan;
  const Simulation s = simulate_on(cluster, described, plan);
  fmt::print("{}\n{}", in_words(cluster), plan.summary());
  described.print_costs();
  const Index batch = batch_of(described, plan);
  described.print_times(
      s, fmt::format("predicted: a step of {} samples on {} ranks takes {}, {:.1f} samples per second", batch,
                     ranks_of(mesh), time_text(s.makespan), static_cast<double>(batch) / s.makespan));
  fmt::print("{}", described.caveat());
  print_traffic(plan, s);
  fmt::print("\n{}", described.model.memory(config, plan));
  if (s.timeline.roles.size() <= 64) fmt::print("\n{}", gantt(plan, s.timeline, terminal_width()));
  write_drawings(options, plan, s.timeline, plan.summary());
  return 0;
}

}  // namespace trireme
