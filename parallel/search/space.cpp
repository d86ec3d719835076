#include "parallel/search/space.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "parallel/comm/world/mesh.h"
#include "parallel/strategies/schedules.h"

namespace trireme {
namespace {

/// Numbers of micro-batches to try with that many stages, ascending.
std::vector<int> micro_of(const SearchSpace& space, int data, int stages) {
  const Index most = std::min<Index>(space.batch / data, space.most_micro);
  std::set<int> all;
  if (!space.micro.empty()) {
    for (const int m : space.micro)
      if (m <= most) all.insert(m);
  } else {
    for (const Index first : {1, stages})
      for (Index m = first; m <= most; m *= 2) all.insert(static_cast<int>(m));
  }
  return {all.begin(), all.end()};
}

/// Most ranks along axis shard where hosts are not described.
constexpr int most_shards = 8;

/// Numbers of ranks along axis shard: 1, and numbers for hybrid sharding.
std::vector<int> shards_of(const SearchSpace& space, const SearchCandidate& c) {
  std::vector<int> all{1};
  const LayerSplit& layers = space.splits[c.split];
  if (layers.divides_batch_axis || std::ranges::find(space.zero, 3) == space.zero.end()) return all;
  const int within = ranks_of(layers.axes) * (c.pipe_first ? 1 : c.stages);  // ranks between neighbours along shard
  for (const int d : divisors(c.data))
    if (d > 1 && d < c.data &&
        (!space.mesh.empty() ? d == size_along(space.mesh, "shard")
         : space.host > 1    ? d * within == space.host
                             : d <= most_shards))
      all.push_back(d);
  return all;
}

/// Appends candidates with all combinations that do not depend on the mesh.
void append(const SearchSpace& space, const SearchCandidate& arranged, bool chooses_buckets,
            std::vector<SearchCandidate>& all) {
  const int sharers =
      arranged.data * (space.splits[arranged.split].cuts_inputs() ? ranks_of(space.splits[arranged.split].axes) : 1);
  for (const bool recompute : space.recompute)
    for (const int zero : space.zero) {
      if (zero > 0 && (sharers == 1 || space.splits[arranged.split].divides_batch_axis)) continue;
      if (arranged.shard > 1 && zero != 3) continue;
      SearchCandidate c = arranged;
      c.recompute = recompute;
      c.zero = zero;
      // ZeRO stage 3 reduces by parts, or by pipeline stages, whatever the buckets.
      if (!chooses_buckets || zero == 3)
        all.push_back(c);
      else
        for (const Index bucket : space.buckets) {
          c.bucket = bucket;
          all.push_back(c);
        }
      // A rank with one unit of weights, a pipeline stage, gathers it once per step in any case.
      if (zero == 3 && (c.stages == 1 || c.chunks > 1)) {
        c.reshard = false;
        all.push_back(c);
      }
    }
}

void append_schedules(const SearchSpace& space, SearchCandidate c, bool chooses_buckets,
                      std::vector<SearchCandidate>& all) {
  if (c.stages == 1) return append(space, c, chooses_buckets, all);
  for (int s = 0; s < std::ssize(space.schedules); ++s) {
    const PipelineSchedule& schedule = find_schedule(space.schedules[s]);
    c.schedule = s;
    c.chunks = 1;
    if (!schedule.interleaves && !schedule.folds) {
      append(space, c, chooses_buckets, all);
      continue;
    }
    for (const int chunks : schedule.folds ? std::vector{2} : space.chunks)
      if ((schedule.folds || c.micro % c.stages == 0) && chunks * c.stages <= space.parts) {
        c.chunks = chunks;
        append(space, c, chooses_buckets, all);
      }
  }
}

}  // namespace

std::vector<int> divisors(int number) {
  std::vector<int> all;
  for (int d = 1; static_cast<std::int64_t>(d) * d <= number; ++d)
    if (number % d == 0) {
      all.push_back(d);
      if (d != number / d) all.push_back(number / d);
    }
  std::ranges::sort(all);
  return all;
}

std::vector<SearchCandidate> candidates(const SearchSpace& space) {
  check(space.ranks >= 1 && space.batch >= 1 && space.parts >= 1, "search",
        "{} ranks, a batch of {} samples and a model of {} parts: each must be at least 1", space.ranks, space.batch,
        space.parts);
  std::vector<SearchCandidate> all;
  for (int split = 0; split < std::ssize(space.splits); ++split) {
    const LayerSplit& layers = space.splits[split];
    const int within = ranks_of(layers.axes);
    if (space.ranks % within != 0) continue;
    const int left = space.ranks / within;
    for (const int stages : divisors(left)) {
      if (stages > space.parts) break;
      SearchCandidate c{.split = split, .data = left / stages, .stages = stages};
      if (c.data > space.batch || (layers.cuts_over_data() && c.data == 1)) continue;
      const bool chooses_buckets = c.data > 1 && !layers.cuts_inputs();
      for (const bool first : {false, true}) {
        if (first && (!space.both_orders || c.data == 1 || c.stages == 1)) continue;
        c.pipe_first = first;
        for (const int shard : shards_of(space, c)) {
          c.shard = shard;
          if (!space.mesh.empty() && mesh_of(space, c) != space.mesh) continue;
          for (const int micro : micro_of(space, c.data, stages)) {
            c.micro = micro;
            append_schedules(space, c, chooses_buckets, all);
          }
        }
      }
    }
  }
  return all;
}

std::vector<Axis> mesh_of(const SearchSpace& space, const SearchCandidate& c) {
  std::vector<Axis> mesh{{"data", c.data / c.shard}, {"shard", c.shard}, {"pipe", c.stages}};
  if (c.pipe_first) std::ranges::rotate(mesh, mesh.end() - 1);
  const auto& more = space.splits[c.split].axes;
  mesh.insert(mesh.end(), more.begin(), more.end());
  std::erase_if(mesh, [](const Axis& a) { return a.size == 1; });
  if (mesh.empty()) mesh.push_back({"data", 1});
  return mesh;
}

std::string strategy_of(const SearchSpace& space, const SearchCandidate& c) {
  const LayerSplit& split = space.splits[c.split];
  // A first bucket of a quarter of the size starts communication early.
  const std::string buckets =
      c.bucket > 0 ? fmt::format("(first_bucket={}, bucket={})", std::max<Index>(1, c.bucket / 4), c.bucket) : "";
  std::vector<std::string> pieces;
  if (c.stages > 1) {
    const std::string chunks = c.chunks > 1 ? fmt::format(", chunks={}", c.chunks) : "";
    pieces.push_back(fmt::format("pipeline(micro={}, schedule={}{})", c.micro, space.schedules[c.schedule], chunks));
  } else if (c.micro > 1) {
    pieces.push_back(fmt::format("accumulate(micro={})", c.micro));
  }
  if (!split.strategy.empty()) pieces.push_back(split.strategy + (split.divides_batch_axis ? buckets : ""));
  if (c.data > 1 && !split.divides_batch_axis) pieces.push_back("data_parallel" + buckets);
  if (c.zero > 0)
    pieces.push_back(
        fmt::format("zero({}{}{})", c.zero, c.shard > 1 ? ", axis=shard" : "", c.reshard ? "" : ", reshard=false"));
  if (pieces.empty()) pieces.push_back("serial");
  return fmt::format("{}", fmt::join(pieces, " | "));
}

Index rows_of(const SearchSpace& space, const SearchCandidate& c) {
  const Index shares = static_cast<Index>(c.data) * c.micro;
  return (space.batch + shares - 1) / shares;
}

}  // namespace trireme
