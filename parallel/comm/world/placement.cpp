#include "parallel/comm/world/placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <utility>

namespace trireme {
namespace {

/// The numbers of a list in the form of Linux: "0-3,8". Empty if there is no such file.
std::vector<int> read_cpu_list(const std::string& path) {
  std::vector<int> found;
  std::ifstream in(path);
  for (int first = 0; in >> first;) {
    int last = first;
    if (in.peek() == '-') in.ignore() >> last;
    for (int cpu = first; cpu <= last; ++cpu) found.push_back(cpu);
    if (in.peek() == ',') in.ignore();
  }
  return found;
}

/// Ascending numbers as such a list.
std::string cpu_list(const std::set<int>& cpus) {
  std::vector<std::string> parts;
  for (auto at = cpus.begin(); at != cpus.end();) {
    const int first = *at;
    int last = first;
    while (++at != cpus.end() && *at == last + 1) ++last;
    parts.push_back(first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

std::vector<int> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> found;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return found;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) found.push_back(cpu);
  return found;
}

std::vector<CpuCore> find_cores(const std::vector<int>& cpus, const std::string& sys) {
  std::map<int, int> nodes;  // of CPUs
  for (const int node : read_cpu_list(sys + "/devices/system/node/online"))
    for (const int cpu : read_cpu_list(fmt::format("{}/devices/system/node/node{}/cpulist", sys, node)))
      nodes[cpu] = node;
  std::map<std::pair<int, int>, CpuCore> cores;  // by node, and the first hyper-thread, which need not be usable
  for (const int cpu : cpus) {
    const auto siblings =
        read_cpu_list(fmt::format("{}/devices/system/cpu/cpu{}/topology/thread_siblings_list", sys, cpu));
    const int node = nodes.contains(cpu) ? nodes.at(cpu) : 0;
    CpuCore& core = cores[{node, siblings.empty() ? cpu : siblings.front()}];
    core.node = node;
    core.cpus.push_back(cpu);
  }
  std::vector<CpuCore> all;
  for (auto& [place, core] : cores) all.push_back(std::move(core));
  return all;
}

std::vector<CpuCore> share_of_cores(const std::vector<CpuCore>& cores, int index, int ranks) {
  std::vector<CpuCore> units;
  for (const CpuCore& core : cores) {
    if (std::ssize(cores) >= ranks)
      units.push_back(core);
    else
      for (const int cpu : core.cpus) units.push_back({core.node, {cpu}});
  }
  const auto begin = std::ssize(units) * index / ranks, end = std::ssize(units) * (index + 1) / ranks;
  return {units.begin() + begin, units.begin() + std::max(begin + 1, end)};
}

std::string to_string(const std::vector<CpuCore>& cores) {
  std::set<int> cpus, nodes;
  for (const CpuCore& core : cores) {
    cpus.insert(core.cpus.begin(), core.cpus.end());
    nodes.insert(core.node);
  }
  return fmt::format("CPU{} {} of NUMA node{} {}", cpus.size() == 1 ? "" : "s", cpu_list(cpus),
                     nodes.size() == 1 ? "" : "s", cpu_list(nodes));
}

}  // namespace trireme
