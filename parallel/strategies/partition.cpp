#include "parallel/strategies/partition.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <ranges>

#include "framework/autograd/step_context.h"
#include "kernels/core/text.h"

namespace trireme {
namespace {

/// Cost of a stage of parts [first, end): the main cost, and a second cost for stages with equal main costs.
using Cost = std::pair<double, double>;
using StageCost = std::function<Cost(int stage, int first, int end)>;
constexpr double impossible = std::numeric_limits<double>::infinity();

/// The best cut of the parts before some end.
struct Cut {
  Cost cost{impossible, 0};
  std::vector<int> starts;
};

/// No stage is empty. The cost of a cut is that of its most expensive stage; tie-breaking costs add up.
Cut best_cut(int parts, int stages, const StageCost& cost_of) {
  std::vector<Cut> best(parts + 1);  // by end
  best[0].cost = {0, 0};
  for (int s = 0; s < stages; ++s) {
    std::vector<Cut> longer(parts + 1);
    for (int end = s + 1; end <= parts - (stages - 1 - s); ++end)
      for (int first = s; first < end; ++first) {
        const auto& [before, starts] = best[first];
        if (before.first == impossible) continue;
        const Cost stage = cost_of(s, first, end);
        const Cost whole{std::max(before.first, stage.first), before.second + stage.second};
        if (whole >= longer[end].cost) continue;
        longer[end] = {whole, starts};
        longer[end].starts.push_back(first);
      }
    best = std::move(longer);
  }
  return best[parts];
}

}  // namespace

std::vector<int> cut_by_cost(const std::vector<PartInfo>& parts, const PartitionOptions& o) {
  const int n = static_cast<int>(parts.size());
  const bool measured = std::any_of(parts.begin(), parts.end(), [](auto& p) { return p.cost.forward > 0; });
  const auto sum = [&](int first, int end, auto value) {
    return std::accumulate(parts.begin() + first, parts.begin() + end, 0.0,
                           [&](double all, const PartInfo& p) { return all + value(p); });
  };
  const auto time = [&](const PartInfo& p) {
    return measured ? p.cost.forward + p.cost.backward_input + p.cost.backward_weight : 1.0;
  };
  const auto bytes_held = [&](int stage, int first, int end) {
    const auto saved = [](const PartInfo& p) { return static_cast<double>(p.cost.saved - p.cost.offloaded); };
    const auto weights = [](const PartInfo& p) { return 12.0 * static_cast<double>(p.slice.size()); };
    return Cost{sum(first, end, weights) + o.in_flight(stage) * sum(first, end, saved), 0};
  };
  const double limit = o.memory > 0 ? static_cast<double>(o.memory) : impossible;
  if (o.memory > 0) {
    const double least = best_cut(n, o.stages, bytes_held).cost.first;
    check(least <= limit, ErrorKind::out_of_memory, "pipeline",
          "memory leaves {} bytes to a stage, but each cut into {} stages has a stage that needs {:.0f} bytes or more: "
          "use more stages or more memory",
          o.memory, o.stages, least);
  }
  const auto cost = [&](int stage, int first, int end) {
    if (bytes_held(stage, first, end).first > limit) return Cost{impossible, 0};
    // An activation and its gradient cross each cut.
    const double crossing = end < n ? 2.0 * static_cast<double>(parts[end - 1].cost.output) : 0;
    return Cost{std::max(sum(first, end, time), crossing / o.bandwidth), crossing};
  };
  return best_cut(n, o.stages, cost).starts;
}

std::vector<int> cut_evenly(int parts, int stages) {
  std::vector<int> starts;
  for (int s = 0; s < stages; ++s) starts.push_back(static_cast<int>(share(parts, s, stages).first));
  return starts;
}

std::vector<int> cut_by_name(const std::vector<PartInfo>& parts, int stages, const std::string& names) {
  std::vector<int> starts{0};
  const auto known = parts | std::views::transform(&PartInfo::name);
  for (std::string& name : split_text(names, ',')) {
    std::erase(name, ' ');
    auto found = std::find_if(parts.begin(), parts.end(),
                              [&](auto& p) { return p.name == name || p.name.starts_with(name + "-"); });
    check(!name.empty() && found != parts.end(), "pipeline",
          "partition names '{}', but no such part exists: use some of {}", name, fmt::join(known, ", "));
    starts.push_back(static_cast<int>(found - parts.begin()));
    check(starts.back() > starts[starts.size() - 2], "pipeline",
          "partition names '{}' after a part that is not before it: use the order of the model, {}", name,
          fmt::join(known, ", "));
  }
  check(std::ssize(starts) == stages, "pipeline",
        "partition names {} beginnings of stages, but {} stages have {} after the first: name that many parts",
        starts.size() - 1, stages, stages - 1);
  return starts;
}

std::vector<Slice> cut_by_size(const std::vector<PartInfo>& parts, Index parameters, int shares) {
  std::vector<Index> ends;  // ends of parts with weights
  for (const PartInfo& part : parts)
    if (part.slice.size() > 0) ends.push_back(part.slice.end);
  check(shares <= std::ssize(ends), "partition",
        "shard=layer gives each of {} servers a layer, but only {} layers have weights: use fewer servers, or "
        "shard=bytes",
        shares, ends.size());
  ends.back() = parameters;
  std::vector<Slice> all;
  Slice now{0, 0};
  for (Index i = 0; i < std::ssize(ends); ++i) {
    const Index behind = shares - std::ssize(all) - 1, left = std::ssize(ends) - i;
    const Index fair = (parameters - now.begin) / (behind + 1), with = ends[static_cast<std::size_t>(i)] - now.begin;
    const bool farther = with - fair > fair - now.size();  // whether the share is farther from the fair size with the
                                                           // part than without it
    if (behind > 0 && now.size() > 0 && (farther || left <= behind)) {
      all.push_back(now);
      now.begin = now.end;
    }
    now.end = ends[static_cast<std::size_t>(i)];
  }
  all.push_back(now);
  return all;
}

}  // namespace trireme
