// trireme infer --plan: available memory, the possible ways, and their predicted costs.
#include "tools/cli/infer_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "kernels/core/environment.h"
#include "kernels/core/runtime.h"
#include "kernels/cpu/arena.h"
#include "parallel/comm/transport/launcher.h"
#include "tools/training/cluster_file.h"

namespace trireme {
namespace {

/// Free bytes of this host, within the container's limit.
double free_memory() {
  double most = INFINITY;
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("MemAvailable:")) most = 1024 * std::stod(line.substr(13));
  const std::string container = "/sys/fs/cgroup/memory.";
  double allowed = 0, taken = 0, bytes = 0;  // "max" is no number: the container has no limit
  if (!(std::ifstream(container + "max") >> allowed) || !(std::ifstream(container + "current") >> taken)) return most;
  std::ifstream stat(container + "stat");
  for (std::string kind; stat >> kind >> bytes;)  // the kernel can reclaim cached files
    if (kind == "active_file" || kind == "inactive_file") taken -= bytes;
  return std::min(most, std::max(1.0, allowed - taken));
}

/// Ranks that share this host: as the launcher reports, else all ranks.
int ranks_here(int ranks) {
  for (const char* name : {"MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE"})
    if (const auto here = environment_number(name)) return static_cast<int>(std::min<double>(*here, ranks));
  return ranks;
}

}  // namespace

double memory_of(const InferCommand& c, int ranks) {
  double most = 0.9 * free_memory() / ranks_here(ranks);
  if (!c.memory.empty()) most = static_cast<double>(bytes_of_memory(c.memory));
  const bool launched = find_launcher([](const char* name) { return std::getenv(name); }).ranks > 1;
  constexpr double threads = 20 * 1048576;  // the process's own: the stack of the thread for signals, heaps
  const double left = static_cast<double>(addresses_left()) - threads;
  return std::min(most, 0.48 * std::max(1.0, left) / (launched ? 1 : ranks));  // ranks' threads map more, too
}

std::string seconds_text(double v) {
  return v < 120    ? fmt::format("{:.3g} s", v)
         : v < 7200 ? fmt::format("{:.3g} min", v / 60)
                    : fmt::format("{:.3g} h", v / 3600);
}

std::string shape_text(const Extents& e, int axes) {
  std::string text;
  for (int s = 0; s < axes; ++s) text += fmt::format("{}{}", s > 0 ? " x " : "", e[static_cast<std::size_t>(s)]);
  return text;
}

static std::string plan_text(const InferencePlan& p, int axes) {
  std::string text = fmt::format("{:<6} {:>7.0f} of {:<18}", to_string(p.way), p.tiles, shape_text(p.tile, axes));
  text += fmt::format(" {:>2} pass{}", p.passes.size() - 1, p.passes.size() > 2 ? "es" : "  ");
  text += fmt::format(" {:>10.1f} MiB {:>6.2f} x {:>9.1f} MB {:>10.1f} MB {:>10.1f} MB {:>10}", p.memory / 1048576,
                      p.voxels / p.least_voxels, p.sent / 1e6, p.read / 1e6, p.written / 1e6, seconds_text(p.seconds));
  return text;
}

PlanRates rates_for(const InferenceSubject& s, const InferCommand& c, const std::vector<Axis>& mesh) {
  PlanRates r;
  const int ranks = ranks_of(mesh);
  if (c.measure) {
    // Ranks of this machine share its cores. A device of a cluster is as fast as all of this machine's cores.
    const int sharing = c.cluster.empty() ? ranks : 1, own = std::max(1, cores() / sharing);
    set_threads(own);
    r.rates.operations = measured_operations(s, c) * std::min(1.0, static_cast<double>(cores()) / (own * sharing));
    set_threads(cores());
    r.text = fmt::format("{:.1f} GFLOP/s for a rank, measured here, and assumed rates of links and disks",
                         r.rates.operations / 1e9);
  }
  if (c.cluster.empty()) return r;
  Cluster cluster = read_cluster(c.cluster);
  if (c.measure) cluster.flops = r.rates.operations;
  r.rates = rates_of(cluster, ranks, r.rates);
  r.text = fmt::format("{:.1f} GFLOP/s{} and the links of {}, and an assumed rate of disks", r.rates.operations / 1e9,
                       c.measure ? ", measured here," : "", c.cluster);
  if (ranks > 1 && (c.way == "auto" || c.way == "mesh")) r.simulated = simulate_mesh(*s.net, mesh, cluster);
  return r;
}

void sort_by(std::vector<InferencePlan>& plans, const PlanRates& rates) {
  for (InferencePlan& plan : plans)
    if (plan.way == InferenceWay::mesh)
      plan.seconds = rates.simulated->seconds + (plan.read + plan.written) / rates.rates.disk;
  std::ranges::stable_sort(plans, {}, &InferencePlan::seconds);
}

void print_plans(const InferenceSubject& s, const std::vector<InferencePlan>& plans, double memory,
                 const PlanRates& rates, Console& console) {
  const int axes = s.whole.rank() - 2;
  console.result(fmt::format("volume:        {} {}, {}{} -> {}; the model reads {} cells around a voxel",
                             s.volume.path(), s.volume.type().name, s.whole,
                             s.net->input() == s.whole ? "" : fmt::format(", padded to {}", s.net->input()), s.result,
                             shape_text(s.net->reach(), axes)));
  console.result(std::isfinite(memory) ? fmt::format("memory:        {:.1f} MiB of tensors per rank", memory / 1048576)
                                       : "memory:        not limited");
  console.result(fmt::format("  {:<6} {:>7} {:<21} {:<9} {:>14} {:>8} {:>12} {:>13} {:>13} {:>10}", "way", "boxes", "",
                             "", "memory/rank", "voxels", "exchanged", "read", "written", "predicted"));
  for (std::size_t i = 0; i < plans.size(); ++i) console.result((i == 0 ? "* " : "  ") + plan_text(plans[i], axes));
  console.result("  voxels: those computed over those of the whole; seconds are of " + rates.text);
  if (const auto& r = rates.simulated)
    console.result(
        fmt::format("simulated:     mesh, rank by rank: {}, of which the busiest rank computes {}; {} messages of "
                    "{:.1f} MB together",
                    seconds_text(r->seconds), seconds_text(r->computing), r->messages, r->sent / 1e6));
}

}  // namespace trireme
