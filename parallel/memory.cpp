#include "parallel/memory.h"

#include <fmt/format.h>

#include <map>

#include "parallel/shards.h"
#include "parallel/tapes.h"
#include "parallel/verbs.h"

namespace trireme {
namespace {

/// The most bytes that the role's micro-batches keep at once, in list order.
Index peak_activations(const Plan& plan, const Role& role) {
  const auto stretches = find_stretches(role, static_cast<int>(plan.parts.size()));
  auto stretch_of = [&](int part) {
    for (const Stretch& s : stretches)
      if (s.first <= part && part < s.end) return s;
    return Stretch{part, part + 1};
  };
  bool frees = false;
  for (const Action& a : role.actions) frees = frees || a.verb == Verb::free;
  std::map<std::pair<int, int>, Index> alive;  // part, micro
  Index now = 0, most = 0;
  auto land = [&](int part, int micro) { now -= std::exchange(alive[{part, micro}], 0); };
  for (const Action& a : role.actions) {
    if (a.verb == Verb::forward) {
      const bool arrives = a.part > 0 && stretch_of(a.part).first == a.part;
      Index& held = alive[{a.part, a.micro}];
      held = plan.parts[a.part].cost.saved + (arrives ? plan.parts[a.part - 1].cost.output : 0);
      now += held;
    }
    most = std::max(most, now);
    if (!frees && completes(a)) land(a.part, a.micro);
    if (a.verb == Verb::free)
      for (int p = stretch_of(a.part).first; p < stretch_of(a.part).end; ++p) land(p, a.micro);
  }
  return most;
}

Index largest(const Plan& plan, const Role& role, Verb verb, Index element) {
  Index most = 0;
  for (const Action& a : role.actions)
    if (a.verb == verb)
      most = std::max(most, a.slice.size() * (verb == Verb::average ? 1 : plan.size(a.peer.axis) > 1));
  return most * element;
}

/// Numbers of an action's slice that are other ranks' affair: of the rank that has the most of it.
Index others_of(const Plan& plan, const Action& a) {
  const int ranks = plan.size(a.peer.axis);
  return a.slice.size() - shard_of(a, a.peer.root >= 0 ? a.peer.root : ranks - 1, ranks).size();
}

}  // namespace

std::vector<RankMemory> predict_memory(const Plan& plan, const MemoryOptions& options) {
  std::vector<RankMemory> all;
  for (const Role& role : plan.roles) {
    Index whole = 0, own = 0, dropped = 0, gathered = 0;  // numbers that the role, and this rank, updates
    for (const Action& a : role.actions) {
      if (a.verb == Verb::update) whole += a.slice.size(), own += a.slice.size() - others_of(plan, a);
      if (a.verb == Verb::drop_gradients) dropped += others_of(plan, a);
    }
    std::map<Index, Index> weights;  // dropped and gathered in every micro-batch, but held once
    for (const Action& a : role.actions)
      if (a.verb == Verb::drop_values) weights[a.slice.begin] = others_of(plan, a);
    for (auto& [begin, others] : weights) gathered += others;
    RankMemory m;
    m.weights = (whole - gathered + plan.buffers) * options.element;
    if (gathered > 0) m.weights += largest(plan, role, Verb::all_gather, options.element);
    m.gradients = whole * options.element;
    if (dropped > 0 && plan.roles.size() == 1)
      m.gradients = std::min(m.gradients, (whole - dropped) * options.element +
                                              2 * largest(plan, role, Verb::reduce_scatter, options.element));
    m.optimizer = own * options.element * options.states;
    m.activations = peak_activations(plan, role);
    m.packed = largest(plan, role, Verb::average, options.element);
    all.push_back(m);
  }
  return all;
}

std::string memory_table(const Plan& plan, const std::vector<RankMemory>& all) {
  std::string text = fmt::format("{:<16} {:>12} {:>12} {:>12} {:>12} {:>12} {:>12}\n", "MB per rank", "weights",
                                 "gradients", "optimizer", "activations", "packed", "total");
  auto mb = [](Index bytes) { return static_cast<double>(bytes) / 1e6; };
  for (std::size_t r = 0; r < all.size(); ++r) {
    const RankMemory& m = all[r];
    text +=
        fmt::format("{:<16} {:>12.2f} {:>12.2f} {:>12.2f} {:>12.2f} {:>12.2f} {:>12.2f}\n", plan.roles[r].name,
                    mb(m.weights), mb(m.gradients), mb(m.optimizer), mb(m.activations), mb(m.packed), mb(m.total()));
  }
  return text;
}

}  // namespace trireme
