// Placement: which cores of a host each of its ranks gets, for World::bind().
#pragma once
#include <string>
#include <vector>

namespace trireme {

/// A physical core of this host, with those of its CPUs (hyper-threads) that may be used.
struct CpuCore {
  int node = 0;           ///< NUMA node
  std::vector<int> cpus;  ///< ascending
};

/// CPUs that this thread may use: its affinity mask, which launchers and containers set. Ascending.
std::vector<int> usable_cpus();
/// The cores of these CPUs, in order of NUMA nodes and then of CPU numbers, so that neighbours share caches. sys: /sys,
/// or a copy of its files. A CPU that it does not describe is a core of node 0.
std::vector<CpuCore> find_cores(const std::vector<int>& cpus, const std::string& sys = "/sys");
/// The cores of rank `index` of `ranks`, at least one: consecutive, and for all ranks the same number up to one. With
/// fewer cores than ranks, hyper-threads are divided like cores. With fewer CPUs than ranks, ranks share them.
std::vector<CpuCore> share_of_cores(const std::vector<CpuCore>&, int index, int ranks);
/// "CPUs 0-3, 8 of NUMA node 0".
std::string to_string(const std::vector<CpuCore>&);

}  // namespace trireme
