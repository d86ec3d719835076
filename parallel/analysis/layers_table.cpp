#include "parallel/analysis/layers_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "framework/tensor/shard_spec.h"
#include "parallel/comm/call.h"
#include "parallel/comm/world/traffic.h"

namespace trireme {
namespace {

std::string count_text(const TrafficCount& c) {
  return fmt::format("{} call{}, {:.2f} MB", c.calls, c.calls == 1 ? "" : "s", static_cast<double>(c.bytes) / 1e6);
}

/// "h.0.attn.weight" in the part "h.0": "attn.weight".
std::string name_within(const PartInfo& part, const std::string& name) {
  return name.starts_with(part.name + ".") ? name.substr(part.name.size() + 1) : name;
}

std::string weights_text(const PartInfo& part, const std::vector<RankWeight>& weights) {
  std::vector<std::string> copies;
  std::size_t width = 0;
  std::string text;
  const auto here = [&](const RankWeight& w) { return w.begin >= part.slice.begin && w.begin < part.slice.end; };
  for (const RankWeight& w : weights)
    if (here(w) && w.divided) width = std::max(width, name_within(part, w.name).size());
  for (const RankWeight& w : weights) {
    if (!here(w)) continue;
    const std::string name = name_within(part, w.name);
    if (w.divided)
      text += fmt::format("  {:<{}} {}\n", name, width, w.placement);
    else
      copies.push_back(name);
  }
  constexpr std::size_t most = 6;  // names on a line
  if (copies.size() > most)
    text += fmt::format("  copies: {} weights, {} to {}\n", copies.size(), copies.front(), copies.back());
  else if (!copies.empty())
    text += fmt::format("  copies: {}\n", fmt::join(copies, ", "));
  return text;
}

std::string moves_text(const PartInfo& part, bool forward) {
  std::vector<std::pair<std::string, TrafficCount>> moves;
  for (const auto& [pass, calls] : part.comms) {
    if ((pass == ActionKind::forward || pass == ActionKind::loss) != forward) continue;
    for (const PlannedCall& c : calls) {
      if (c.calls == 0) continue;
      const std::string what = fmt::format("{} over {}", c.move.empty() ? name_of(c.kind) : c.move, c.axis);
      auto at = std::ranges::find(moves, what, &std::pair<std::string, TrafficCount>::first);
      if (at == moves.end()) at = moves.insert(at, {what, {}});
      at->second += {c.calls, c.bytes};
    }
  }
  std::string text;
  for (const auto& [what, count] : moves)
    text += fmt::format("  {:<8} {}: {}\n", forward ? "forward" : "backward", what, count_text(count));
  return text;
}

}  // namespace

std::vector<RankWeight> rank_weights(const Parameters& parameters) {
  std::vector<RankWeight> all;
  for (const auto& e : parameters.entries()) {
    const ShardSpec* spec = e.tensor.shard_spec();
    all.push_back(
        {e.name, e.slice.begin, spec ? to_string(*spec) : to_string(e.tensor.shape()), spec && spec->divides()});
  }
  return all;
}

std::string layers_table(const Plan& plan, const std::vector<RankWeight>& weights, Index rows) {
  struct Entry {
    std::string first, last, body;
    int parts;
  };
  std::vector<Entry> entries;
  Traffic total;
  for (const PartInfo& part : plan.parts) {
    for (const auto& [pass, calls] : part.comms)
      for (const PlannedCall& c : calls)
        if (c.calls > 0) total[c.axis] += {c.calls, c.bytes};
    const std::string body = weights_text(part, weights) + moves_text(part, true) + moves_text(part, false);
    if (body.empty()) continue;
    if (entries.empty() || entries.back().body != body) {
      entries.push_back({part.name, part.name, body, 1});
    } else {
      entries.back().last = part.name;
      ++entries.back().parts;
    }
  }
  std::string text =
      fmt::format("layers of a rank: weights, and what it sends for a micro-batch of {} row{} (payload)\n", rows,
                  rows == 1 ? "" : "s");
  for (const Entry& e : entries)
    text += (e.parts == 1 ? e.first : fmt::format("{} to {}, each of {}", e.first, e.last, e.parts)) + "\n" + e.body;
  for (const auto& [axis, count] : total) text += fmt::format("all layers over {}: {}\n", axis, count_text(count));
  if (total.empty()) text += "all layers: no messages\n";
  return text;
}

}  // namespace trireme
