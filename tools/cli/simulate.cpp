// trireme simulate: what a step of the settings' strategy would take on a cluster. Ranks are described, none is
// started.
#include <fmt/format.h>

#include "kernels/core/runtime.h"
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
  return simulate(plan, {.cluster = cluster, .element = size_of(d.subject.parameters.dtype())});
}

/// Rows that all ranks together take in a step.
Index batch_of(const DescribedPlan& d, const Plan& plan) {
  return d.rows * plan.microbatches * size_along(plan.axes, "data");
}

void print_traffic(const Plan& plan, const Simulation& s) {
  fmt::print("\n{:<16} {:<12} {:>14} {:>16}\n", "role", "axis", "link is busy", "bytes per rank");
  for (std::size_t r = 0; r < plan.roles.size(); ++r)
    for (const AxisTraffic& t : s.traffic[r])
      if (t.bytes > 0)
        fmt::print("{:<16} {:<12} {:>14} {:>16}\n", plan.roles[r].name, t.axis, time_text(t.seconds), t.bytes);
}

}  // namespace

int simulate_command(const TrainerOptions& config, const PlanOptions& options) {
  if (config.parallel.threads > 0)
    set_threads(static_cast<int>(config.parallel.threads));
  else if (options.cluster.empty())
    set_threads(1);  // a device is a core
  const std::vector<Axis> mesh = mesh_axes(config);
  const Cluster cluster = cluster_of(options, ranks_of(mesh));
  DescribedPlan described(config, mesh, options.cost);
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
  fmt::print("\n{}", described.subject.memory(config, plan));
  if (s.timeline.roles.size() <= 64) fmt::print("\n{}", gantt(plan, s.timeline, terminal_width()));
  write_drawings(options, plan, s.timeline, plan.summary());
  return 0;
}

}  // namespace trireme
