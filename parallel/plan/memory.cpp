#include "parallel/plan/memory.h"

#include <fmt/format.h>

#include <map>

#include "parallel/plan/action_kind.h"
#include "parallel/plan/channels.h"
#include "parallel/plan/liveness.h"
#include "parallel/plan/shards.h"

namespace trireme {
namespace {

/// The most bytes of a kind that the program's micro-batches keep at once. with_arrived: and what came over cuts.
Index peak_kept(const Plan& plan, const Program& program, Index PartCost::*kept, bool with_arrived) {
  const Liveness live(program);
  return std::ranges::max(live.totals([&](const LiveRange& r) {
    const Segment& s = live.segments[r.segment];
    Index bytes = with_arrived && s.first > 0 ? plan.parts[s.first - 1].cost.output : 0;
    for (int p = s.first; p < s.end; ++p) bytes += plan.parts[p].cost.*kept;
    return bytes;
  }));
}

Index largest(const Plan& plan, const Program& program, ActionKind kind, Index element) {
  Index most = 0;
  for (const Action& a : program.actions)
    if (a.kind == kind)
      most = std::max(most, a.slice.size() * (kind == ActionKind::average ? 1 : plan.size(a.peer.axis) > 1));
  return most * element;
}

/// Messages that start the phase of an action.
Index messages_of(const Plan& plan, const Program& program, const Action& a) {
  const Trigger& t = program.trigger(a);
  if (t.count > 0) return t.count;
  return std::ssize(senders_to(plan, t.channel, plan.range(program, a.peer.axis).begin));
}

/// Numbers of an action's slice that are other ranks' affair: of the rank that has the most of it.
Index others_of(const Plan& plan, const Action& a) {
  const int ranks = plan.size(a.peer.axis);
  return a.slice.size() - shard_of(a, a.peer.root >= 0 ? a.peer.root : ranks - 1, ranks).size();
}

}  // namespace

std::vector<RankMemory> predict_memory(const Plan& plan, const MemoryOptions& options) {
  std::vector<RankMemory> all;
  for (const Program& program : plan.programs) {
    Index whole = 0, own = 0, dropped = 0, gathered = 0;  // numbers that the program, and this rank, updates
    for (const Action& a : program.actions) {
      if (a.kind == ActionKind::update) whole += a.slice.size(), own += a.slice.size() - others_of(plan, a);
      if (a.kind == ActionKind::pull && a.field == "weights") whole += a.slice.size();
      if (a.kind == ActionKind::drop_gradients) dropped += others_of(plan, a);
    }
    std::map<Index, Index> weights;    // dropped and gathered in every micro-batch, but held once
    Index largest_unit = 0, unit = 0;  // others' part of what is gathered at a time, and dropped together
    for (const Action& a : program.actions) {
      unit = a.kind == ActionKind::drop_values ? unit + others_of(plan, a) : 0;
      if (a.kind == ActionKind::drop_values) weights[a.slice.begin] = others_of(plan, a);
      largest_unit = std::max(largest_unit, unit);
    }
    for (auto& [begin, others] : weights) gathered += others;
    RankMemory m;
    m.weights = (whole * program.versions - gathered + largest_unit + plan.buffers) * options.element;
    m.gradients = whole * options.element;
    if (dropped > 0 && plan.programs.size() == 1)
      m.gradients = std::min(m.gradients, (whole - dropped) * options.element +
                                              2 * largest(plan, program, ActionKind::reduce_scatter, options.element));
    m.optimizer = (own * options.states + whole * std::ssize(plan.state)) * options.element;
    m.activations = peak_kept(plan, program, &PartCost::saved, true);
    m.halos = peak_kept(plan, program, &PartCost::halo, false);
    m.packed = largest(plan, program, ActionKind::average, options.element);
    for (const Action& a : program.actions)
      if (a.kind == ActionKind::take) m.packed += a.slice.size() * messages_of(plan, program, a) * options.element;
    all.push_back(m);
  }
  return all;
}

std::string memory_table(const Plan& plan, const std::vector<RankMemory>& predicted,
                         const std::vector<RankMemory>& measured, const std::vector<int>& programs) {
  std::string text = fmt::format("{:<20} {:>10} {:>10} {:>10} {:>11} {:>10} {:>10} {:>10}\n", "MB per rank", "weights",
                                 "gradients", "optimizer", "activations", "halos", "packed", "total");
  const auto line = [&](const std::string& name, const RankMemory& m) {
    auto mb = [](Index bytes) { return static_cast<double>(bytes) / 1e6; };
    text += fmt::format("{:<20} {:>10.2f} {:>10.2f} {:>10.2f} {:>11.2f} {:>10.2f} {:>10.2f} {:>10.2f}\n", name,
                        mb(m.weights), mb(m.gradients), mb(m.optimizer), mb(m.activations), mb(m.halos), mb(m.packed),
                        mb(m.total()));
  };
  for (std::size_t r = 0; r < predicted.size(); ++r) {
    line(plan.programs[r].name + (measured.empty() ? "" : ", predicted"), predicted[r]);
    for (std::size_t rank = 0; rank < measured.size(); ++rank)
      if (programs[rank] == static_cast<int>(r)) line(fmt::format("  rank {}, measured", rank), measured[rank]);
  }
  return text;
}

}  // namespace trireme
