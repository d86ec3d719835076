#include "parallel/comm/cluster.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <optional>

#include "parallel/comm/fnv.h"

namespace trireme {
namespace {

/// The index of the rank's node group, and of its node within all nodes.
struct Place {
  const NodeGroup* group;
  int node;
};
/// Placement in rounds: each round gives one rank to every node with a free device (Cluster::cyclic).
Place dealt_place(const Cluster& cluster, int rank) {
  int most = 0;
  for (const NodeGroup& g : cluster.nodes) most = std::max(most, g.devices);
  for (int round = 0; round < most; ++round) {  // one rank for each node with more than `round` devices
    int nodes = 0;
    for (const NodeGroup& g : cluster.nodes) {
      if (g.devices > round && rank < g.count) return {&g, nodes + rank};
      nodes += g.count;
      rank -= g.devices > round ? g.count : 0;
    }
  }
  return {nullptr, -1};
}
Place place_of(const Cluster& cluster, int rank) {
  if (cluster.cyclic && rank >= 0 && rank < cluster.devices()) return dealt_place(cluster, rank);
  int first = 0, nodes = 0;
  for (const NodeGroup& g : cluster.nodes) {
    const int here = g.count * g.devices;
    if (rank >= 0 && rank - first < here) return {&g, nodes + (rank - first) / g.devices};
    first += here;
    nodes += g.count;
  }
  fail("cluster", "rank {} has no device: the cluster has {}", rank, cluster.devices());
}

/// Uniform in (0, 1]: a hash of the arguments.
double uniform(std::uint64_t seed, std::uint64_t rank, std::uint64_t key, std::uint64_t index) {
  Fnv fnv;
  fnv.add(seed, rank, key, index);
  std::uint64_t h = fnv.value();  // the finalizer of SplitMix64 (Steele et al. 2014) mixes FNV's low bits
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
  h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>(((h ^ (h >> 31)) >> 11) + 1) * 0x1p-53;
}

void check_link(const Link& link, const char* name) {
  check(std::isfinite(link.latency) && link.latency >= 0, "cluster", "the latency {} nodes is {} s, expected 0 or more",
        name, link.latency);
  check(std::isfinite(link.bandwidth) && link.bandwidth >= 0, "cluster",
        "the bandwidth {} nodes is {} bytes per second, expected 0 (any) or more", name, link.bandwidth);
  check(std::isfinite(link.efficiency) && link.efficiency > 0 && link.efficiency <= 1, "cluster",
        "the efficiency of links {} nodes is {}, expected one in (0, 1]", name, link.efficiency);
  check(std::isfinite(link.oversubscription) && link.oversubscription >= 1, "cluster",
        "the oversubscription of links {} nodes is {}, expected 1 or more", name, link.oversubscription);
  for (const MeasuredCall& m : link.measured)
    check(m.ranks >= 2 && m.bytes >= 0 && std::isfinite(m.seconds) && m.seconds >= 0, "cluster",
          "a call measured {} nodes has {} ranks, {} bytes and took {} s", name, m.ranks, m.bytes, m.seconds);
}

/// Seconds of a call, interpolated between calls of Link::measured with the same kind and number of ranks; none: there
/// are none. Sizes may be in any order.
std::optional<double> measured_time(const Link& link, CallKind kind, int ranks, Index bytes) {
  const MeasuredCall *below = nullptr, *above = nullptr, *last = nullptr;  // neighbours of `bytes`; the largest
  for (const MeasuredCall& m : link.measured) {
    if (m.kind != kind || m.ranks != ranks) continue;
    if (m.bytes <= bytes && (!below || m.bytes > below->bytes)) below = &m;
    if (m.bytes >= bytes && (!above || m.bytes < above->bytes)) above = &m;
    if (!last || m.bytes > last->bytes) last = &m;
  }
  if (!last) return {};
  if (!above)
    return last->seconds * (last->bytes > 0 ? static_cast<double>(bytes) / static_cast<double>(last->bytes) : 1);
  if (!below || below->bytes == above->bytes) return above->seconds;
  const double share = static_cast<double>(bytes - below->bytes) / static_cast<double>(above->bytes - below->bytes);
  return below->seconds + share * (above->seconds - below->seconds);
}

/// Rounds to the nearest integer. A clock has room for 46 times the longest duration.
Nanoseconds rounded(double nanoseconds) {
  check(std::abs(nanoseconds) < 1e17, "cluster", "something takes {} s: more than can be counted in nanoseconds",
        nanoseconds / 1e9);
  return std::llround(nanoseconds);
}

}  // namespace

Nanoseconds nanoseconds(double seconds) { return rounded(seconds * 1e9); }

DeviceRates Cluster::rates() const {
  return memory_bandwidth > 0 ? DeviceRates{flops, memory_bandwidth} : DeviceRates{flops};
}

int Cluster::devices() const {
  int all = 0;
  for (const NodeGroup& g : nodes) all += g.count * g.devices;
  return all;
}

int Cluster::node_of(int rank) const { return place_of(*this, rank).node; }
double Cluster::speed_of(int rank) const { return place_of(*this, rank).group->speed; }

const Link& Cluster::link(std::span<const int> ranks) const {
  const auto elsewhere = [&](int rank) { return node_of(rank) != node_of(ranks[0]); };
  return std::ranges::any_of(ranks, elsewhere) ? between : inside;
}

Nanoseconds Cluster::compute(Nanoseconds cost, int rank, std::uint64_t key) const {
  double factor = 1 / speed_of(rank);
  if (jitter > 0) {  // Box and Muller 1958
    const auto r = static_cast<std::uint64_t>(rank);
    factor *= std::exp(jitter * std::sqrt(-2 * std::log(uniform(seed, r, key, 0))) *
                       std::cos(2 * std::numbers::pi * uniform(seed, r, key, 1)));
  }
  return rounded(static_cast<double>(cost) * factor);
}

void validate(const Cluster& c) {
  check(!c.nodes.empty(), "cluster", "there are no nodes");
  Index all = 0;
  for (std::size_t i = 0; i < c.nodes.size(); ++i) {
    const NodeGroup& g = c.nodes[i];
    check(g.count >= 1, "cluster", "nodes {}: count is {}, expected 1 or more", i, g.count);
    check(g.devices >= 1, "cluster", "nodes {}: devices is {}, expected 1 or more", i, g.devices);
    check(std::isfinite(g.speed) && g.speed > 0, "cluster", "nodes {}: speed is {}, expected above 0", i, g.speed);
    check(std::isfinite(g.memory) && g.memory >= 0, "cluster",
          "nodes {}: memory is {} bytes, expected 0 (unknown) or more", i, g.memory);
    all += static_cast<Index>(g.count) * g.devices;
  }
  check(all <= 1 << 24, "cluster", "there are {} devices, expected {} or fewer", all, 1 << 24);
  check_link(c.inside, "inside");
  check_link(c.between, "between");
  check(std::isfinite(c.jitter) && c.jitter >= 0 && c.jitter <= Cluster::most_jitter, "cluster",
        "jitter is {}, expected one in [0, {}]", c.jitter, Cluster::most_jitter);
  check(std::isfinite(c.flops) && c.flops > 0, "cluster", "flops is {}, expected above 0", c.flops);
  check(std::isfinite(c.memory_bandwidth) && c.memory_bandwidth >= 0, "cluster",
        "memory_bandwidth is {}, expected above 0, or 0 for flops / 8", c.memory_bandwidth);
}

std::string to_string(Source source) {
  constexpr const char* names[] = {"measured", "data sheet", "assumed"};
  return names[static_cast<int>(source)];
}

Nanoseconds message_time(const Link& link, Index bytes) {
  if (const auto seconds = measured_time(link, CallKind::send, 2, bytes)) return nanoseconds(*seconds);
  return nanoseconds(link.latency + static_cast<double>(bytes) * link.per_byte());
}

std::string_view algorithm_of(const Link& link, CallKind kind, int ranks, Index bytes) {
  if (measured_time(link, kind, ranks, bytes)) return "measured";
  const bool by_size = link.sizes != CollectiveSizes{};
  const bool doubles = bytes <= link.sizes.doubling, halves = bytes <= link.sizes.halving;
  switch (kind) {
    case CallKind::all_reduce:
      return !by_size ? "ring" : doubles ? "recursive doubling" : halves ? "halving and doubling" : "ring";
    case CallKind::reduce_scatter:
    case CallKind::all_gather: return by_size && (doubles || halves) ? "halving and doubling" : "ring";
    case CallKind::all_to_all: return "pairwise";
    case CallKind::broadcast:
    case CallKind::reduce:
      return !by_size ? "chain" : doubles ? "binomial tree" : halves ? "halving and doubling" : "chain";
    case CallKind::gather:
    case CallKind::scatter: return by_size ? "binomial tree" : "chain";
    default: return by_size ? "dissemination" : "ring";
  }
}

Nanoseconds collective_time(const Link& link, CallKind kind, int ranks, Index bytes) {
  if (ranks <= 1) return 0;
  if (kind == CallKind::send) return message_time(link, bytes);
  if (const auto seconds = measured_time(link, kind, ranks, bytes)) return nanoseconds(*seconds);
  const double hops = ranks - 1, n = static_cast<double>(bytes), a = link.latency, b = link.per_byte();
  const auto p = static_cast<unsigned>(ranks);
  const double few = std::bit_width(p) - 1, levels = std::bit_width(p - 1);  // log2 p rounded down and up
  const double half = 1 - 1.0 / std::bit_floor(p), extra = std::has_single_bit(p) ? 0 : 2 * (a + n * b);
  const bool sums = kind == CallKind::all_reduce;
  const std::string_view algorithm = algorithm_of(link, kind, ranks, bytes);
  if (algorithm == "recursive doubling") return nanoseconds(few * (a + n * b) + extra);
  if (algorithm == "binomial tree" && (kind == CallKind::broadcast || kind == CallKind::reduce))
    return nanoseconds(levels * (a + n * b));
  if (algorithm == "binomial tree") return nanoseconds(levels * a + n * b);
  if (algorithm == "dissemination") return nanoseconds(levels * a);
  if (algorithm == "halving and doubling") {
    if (kind == CallKind::broadcast || kind == CallKind::reduce)
      return nanoseconds((few + levels) * a + 2 * half * n * b);
    return nanoseconds((sums ? 2 : 1) * (few * a + half * n * b) + extra);
  }
  if (kind == CallKind::barrier || kind == CallKind::split) return nanoseconds(hops * a);
  if (algorithm == "chain") return nanoseconds(hops * a + n * b);
  return nanoseconds((sums ? 2 : 1) * hops * (a + n / ranks * b));
}

}  // namespace trireme
