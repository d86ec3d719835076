// trireme simulate: what steps of the settings' strategy would take on a cluster. Ranks are described, none is
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
Cluster cluster_of(const TrainerOptions& config, const DescribedPlan& d, int ranks) {
  if (!config.parallel.cluster.empty()) return read_cluster(config.parallel.cluster);
  Cluster all;
  all.nodes = {{.count = (ranks + cores() - 1) / cores(), .devices = cores()}};
  all.name = "machines like this one";
  if (!d.calls.empty()) all.inside = all.between = link_of(d.calls), all.overlaps = false;
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

/// Rows that all ranks together take in a step, where the batch grows with the ranks.
Index batch_of(const DescribedPlan& d, const Plan& plan) { return d.rows * plan.microbatches * batch_ranks(plan); }

/// Where it is other than in `shown`.
void print_traffic(const Plan& plan, const Simulation& s, const Simulation& shown = {}) {
  fmt::print("\n{:<16} {:<20} {:>14} {:>16}\n", "program", "axis", "link is busy", "bytes per rank");
  for (std::size_t r = 0; r < plan.programs.size(); ++r)
    for (const AxisTraffic& t : s.traffic[r])
      if (t.bytes > 0 && (shown.traffic.empty() || std::ranges::find(shown.traffic[r], t) == shown.traffic[r].end()))
        fmt::print("{:<16} {:<20} {:>14} {:>16}\n", plan.programs[r].name, t.axis, time_text(t.seconds), t.bytes);
}

/// The numbers of "ranks=1,2,4".
std::vector<int> sweep_of(const std::string& text) {
  std::vector<int> all;
  for (const std::string& piece : split_text(text.starts_with("ranks=") ? text.substr(6) : "", ',')) {
    int& ranks = all.emplace_back();
    if (!parse_number(piece, ranks) || ranks < 1 || ranks > 1 << 24)
      throw OptionError(fmt::format("--sweep is '{}'; write for example ranks=1,2,4,8, of 1 to {} ranks each",
                                    shortened(text), 1 << 24));
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
int sweep(const TrainerOptions& config, const PlanOptions& options, const std::vector<int>& counts) {
  DescribedPlan described(config, mesh_axes(config), options.cost);
  const Cluster cluster = cluster_of(config, described, *std::ranges::max_element(counts));
  ChartSeries predicted{"predicted", {}}, ideal{"in proportion", {}, true};
  std::string table = fmt::format("{}, {} rows per micro-batch and rank\n{:>8} {:>10} {:>12} {:>16} {:>10}\n",
                                  in_words(cluster), described.rows, "ranks", "batch", "step", "samples/s", "per rank");
  for (const int ranks : counts) {
    const std::vector<Axis> mesh = with_ranks(described.mesh, ranks);
    Plan plan = described.model.whole_plan(config, make_strategy(config, ranks), described.parts, mesh);
    described.imagine_ranks(config, plan);
    const Simulation s = described.simulate_on(cluster, plan, described.traffic.step, options.steps);
    const Index batch = batch_of(described, plan);
    const double step = s.makespan / options.steps;
    predicted.points.push_back({ranks, static_cast<double>(batch) / step});
    const auto& [first_ranks, first] = predicted.points.front();
    ideal.points.push_back({ranks, first * ranks / first_ranks});
    table +=
        fmt::format("{:>8} {:>10} {:>12} {:>16.1f} {:>8.1f} %\n", ranks, batch, time_text(step),
                    predicted.points.back().second, 100 * predicted.points.back().second / ideal.points.back().second);
  }
  fmt::print("{}{}", table, described.caveat(options.steps));
  const std::string title = config.model + (config.parallel.strategy.empty() ? "" : ", " + config.parallel.strategy);
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
  else if (config.parallel.cluster.empty())
    set_threads(1);  // a device is a core
  if (config.parallel.allreduce != "default")
    throw OptionError(
        fmt::format("parallel.allreduce is {}; simulate reduces along rings: use default", config.parallel.allreduce));
  if (!options.sweep.empty()) return sweep(config, options, sweep_of(options.sweep));
  const std::vector<Axis> mesh = mesh_axes(config);
  DescribedPlan described(config, mesh, options.cost);
  const Cluster cluster = cluster_of(config, described, ranks_of(mesh));
  described.imagine_ranks(config, described.plan);
  const Plan& plan = described.plan;
  const Simulation s = described.simulate_on(cluster, plan, described.traffic.step, options.steps);
  fmt::print("{}\n{}", in_words(cluster), plan.summary());
  described.print_costs();
  const Index batch = config.data.batch;
  const double step = s.makespan / options.steps;
  const std::string steps =
      options.steps == 1
          ? fmt::format("a step of {} samples on {} ranks takes {}", batch, ranks_of(mesh), time_text(step))
          : fmt::format("{} steps of {} samples on {} ranks take {}, {} each", options.steps, batch, ranks_of(mesh),
                        time_text(s.makespan), time_text(step));
  described.print_times(
      s, fmt::format("predicted: {}, {:.1f} samples per second", steps, static_cast<double>(batch) / step));
  fmt::print("{}", described.caveat(options.steps));
  print_traffic(plan, s);
  for (const ProgramPhase& phase : options.steps == 1 ? rare_phases(plan) : std::vector<ProgramPhase>{}) {
    const Trigger& when = phase.trigger;
    const std::int64_t step = when.from + ((when.offset - when.from) % when.every + when.every) % when.every;
    if (when.runs_at(described.traffic.step) || !when.runs_at(step)) continue;
    const Simulation other = described.simulate_on(cluster, plan, step);
    fmt::print("\na step with {} ({}) takes {}\n", phase.name, to_string(when), time_text(other.makespan));
    print_traffic(plan, other, s);
  }
  fmt::print("\n{}", described.model.memory(config, plan));
  if (s.timeline.programs.size() <= 64) fmt::print("\n{}", gantt(plan, s.timeline, terminal_width()));
  write_drawings(options, plan, s.timeline, plan.summary());
  return 0;
}

}  // namespace trireme
