// For tests of virtual time: ranks' clocks on small clusters.
#pragma once
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace trireme::test {

/// All in one node.
inline Cluster one_node(int devices) {
  return {.nodes = {{.count = 1, .devices = devices}},
          .inside = {.latency = 100e-9, .bandwidth = 1e9},
          .between = {.latency = 1000e-9, .bandwidth = 0.25e9}};
}

/// What body returns on each rank.
template <class F>
auto on_clocks(int ranks, const Cluster& cluster, F&& body) {
  std::vector<decltype(body(std::declval<World&>()))> all(static_cast<std::size_t>(ranks));
  World::virtual_time(ranks, cluster, [&](World& world) { all[static_cast<std::size_t>(world.rank())] = body(world); });
  return all;
}
using Times = std::vector<Nanoseconds>;

inline Tensor bytes(Index n) { return Tensor::zeros({n}, DType::u8); }

/// For bodies of ranks, where Catch2 cannot be asked.
inline void expect(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error("not so: " + what);
}

/// Lets pass what a computation takes on this rank (Cluster::compute).
inline void compute(World& world, Nanoseconds cost, std::uint64_t key) {
  world.clock()->advance(world.clock()->cluster().compute(cost, world.rank(), key));
}

}  // namespace trireme::test
