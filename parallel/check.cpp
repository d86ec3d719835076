// check(plan): finds what would hang or train a different model. Order within a role is judged by what the
// plan promises (lane order and `after`), not by how one executor happens to run it; messages are played
// through on a few coordinates.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "parallel/play.h"

namespace trireme {
namespace {

bool is_reduction(const Action& a) { return a.verb == Verb::all_reduce || a.verb == Verb::reduce_scatter; }
bool is_collective(const Action& a) {
  return is_reduction(a) || a.verb == Verb::all_gather || a.verb == Verb::broadcast || a.verb == Verb::average;
}
bool is_message(const Action& a) { return a.verb == Verb::send || a.verb == Verb::recv; }
/// A backward that completes weight gradients.
bool completes(const Action& a) { return a.verb == Verb::backward || a.verb == Verb::backward_weight; }
bool overlap(const Slice& a, const Slice& b) { return a.begin < b.end && b.begin < a.end; }

std::string data_axis(const Plan& plan) {
  for (auto& role : plan.roles)
    for (auto& a : role.actions)
      if (is_reduction(a)) return a.peer.axis;
  return "data";
}

class Faults {
 public:
  template <class... A>
  void add(fmt::format_string<A...> text, A&&... args) {
    auto line = fmt::format(text, std::forward<A>(args)...);
    if (std::find(lines_.begin(), lines_.end(), line) == lines_.end()) lines_.push_back(std::move(line));
  }
  bool empty() const { return lines_.empty(); }
  std::vector<std::string> take() { return std::move(lines_); }

 private:
  std::vector<std::string> lines_;
};

std::string place(const Role& role, ActionId id) {
  return fmt::format("role {}, action {} ({})", role.name, id, to_string(role.actions[id]));
}

/// Which actions of a role have finished before another may start.
class Order {
 public:
  explicit Order(const Role& role)
      : role_(role), n_(static_cast<int>(role.actions.size())), before_(n_, std::vector<bool>(n_)) {
    std::vector<int> state(n_);
    for (ActionId id = 0; id < n_ && cycle_.empty(); ++id) visit(id, state);
  }
  bool operator()(ActionId a, ActionId b) const { return before_[b][a]; }
  const std::string& cycle() const { return cycle_; }  ///< empty: none

 private:
  void visit(ActionId id, std::vector<int>& state) {
    if (state[id] == 2 || !cycle_.empty()) return;
    if (state[id] == 1) {
      cycle_ =
          fmt::format("deadlock: {} waits for itself, through `after` and the order of its lane", place(role_, id));
      return;
    }
    state[id] = 1;
    const Action& a = role_.actions[id];
    auto inherit = [&](ActionId from, bool finished) {
      visit(from, state);
      for (int i = 0; i < n_; ++i)
        if (before_[from][i]) before_[id][i] = true;
      if (finished) before_[id][from] = true;
    };
    // Compute finishes in order; messages and collectives only start in order.
    for (ActionId i = id - 1; i >= 0; --i) {
      if (role_.actions[i].lane != a.lane) continue;
      inherit(i, a.lane == Lane::compute);
      break;
    }
    for (ActionId from : a.after) inherit(from, true);
    state[id] = 2;
  }

  const Role& role_;
  int n_;
  std::vector<std::vector<bool>> before_;
  std::string cycle_;
};

void check_shape(const Plan& plan, Faults& faults) {
  for (auto& part : plan.parts)
    if (part.slice.begin < 0 || part.slice.end > plan.parameters || part.slice.size() < 0)
      faults.add("part '{}' has the slice [{}, {}) of a block of {}", part.name, part.slice.begin, part.slice.end,
                 plan.parameters);
  for (auto& role : plan.roles) {
    int n = static_cast<int>(role.actions.size());
    for (ActionId id = 0; id < n; ++id) {
      const Action& a = role.actions[id];
      for (ActionId from : a.after)
        if (from < 0 || from >= n || from == id)
          faults.add("{} depends on action {}, which is {}", place(role, id), from,
                     from == id ? "itself" : "not there");
      if (a.part >= static_cast<int>(plan.parts.size()))
        faults.add("{}: there are {} parts", place(role, id), plan.parts.size());
      bool layered = a.verb == Verb::forward || a.verb == Verb::backward || a.verb == Verb::backward_input ||
                     a.verb == Verb::backward_weight;
      if (layered && a.part < 0) faults.add("{} names no part", place(role, id));
      Index block = a.verb == Verb::average ? std::max(plan.buffers, plan.parameters) : plan.parameters;
      if ((is_reduction(a) || a.verb == Verb::update) &&
          (a.slice.begin < 0 || a.slice.end > block || a.slice.size() <= 0))
        faults.add("{} has the slice [{}, {}) of a block of {}", place(role, id), a.slice.begin, a.slice.end, block);
      if ((is_collective(a) || is_message(a)) && a.peer.axis.empty()) faults.add("{} names no axis", place(role, id));
      if (a.on_ready && a.after.empty()) faults.add("{} names no backward to start in", place(role, id));
    }
  }
}

// Forward and backward of every part and micro-batch: each once, in the order of the chain rule.
struct Passes {
  struct At {
    std::size_t role;
    ActionId id;
  };
  std::map<std::tuple<Verb, int, int>, At> first;  // by verb, part, micro
  int micros = 0;
  std::optional<At> find(Verb v, int part, int micro) const {
    auto at = first.find({v, part, micro});
    return at == first.end() ? std::nullopt : std::optional(at->second);
  }
};

Passes collect_passes(const Plan& plan, Faults& faults) {
  Passes passes;
  for (std::size_t r = 0; r < plan.roles.size(); ++r)
    for (ActionId id = 0; id < static_cast<int>(plan.roles[r].actions.size()); ++id) {
      const Action& a = plan.roles[r].actions[id];
      if (a.verb < Verb::forward || a.verb > Verb::backward_weight) continue;
      passes.micros = std::max(passes.micros, a.micro + 1);
      auto [at, fresh] = passes.first.try_emplace({a.verb, a.part, a.micro}, Passes::At{r, id});
      if (!fresh)
        faults.add("{} repeats {}", place(plan.roles[r], id), place(plan.roles[at->second.role], at->second.id));
    }
  return passes;
}

void check_passes(const Plan& plan, const std::vector<Order>& orders, const Passes& passes, Faults& faults) {
  int n = static_cast<int>(plan.parts.size());
  using At = std::optional<Passes::At>;
  auto in_order = [&](At a, At b) {
    if (a && b && a->role == b->role && !orders[a->role](a->id, b->id))
      faults.add("{} does not wait for {}", place(plan.roles[b->role], b->id), place(plan.roles[a->role], a->id));
  };
  for (int m = 0; m < passes.micros; ++m) {
    At loss = passes.find(Verb::loss, -1, m);
    if (!loss) faults.add("micro-batch {} has no loss", m);
    for (int p = 0; p < n; ++p) {
      At forward = passes.find(Verb::forward, p, m), back = passes.find(Verb::backward, p, m);
      At input = passes.find(Verb::backward_input, p, m), weight = passes.find(Verb::backward_weight, p, m);
      auto name = fmt::format("part {} ('{}') micro {}", p, plan.parts[p].name, m);
      if (!forward) faults.add("{} is never run forward", name);
      if (!back && !weight) faults.add("{} is never run backward", name);
      if (back && (input || weight)) faults.add("{} is run backward whole and in halves", name);
      in_order(forward, back), in_order(forward, input), in_order(input, weight);
      in_order(passes.find(Verb::forward, p - 1, m), forward);
      At own = back ? back : input, next = passes.find(Verb::backward, p + 1, m);
      in_order(next ? next : passes.find(Verb::backward_input, p + 1, m), own);
      if (p == n - 1) in_order(forward, loss), in_order(loss, own);
    }
  }
}

/// One stretch of a part's parameters that all reductions and updates treat alike.
void check_stretch(const Role& role, const Order& order, const PartInfo& part, int index, Slice s, int data_ranks,
                   Faults& faults) {
  std::vector<ActionId> backwards, reductions, updates;
  for (ActionId id = 0; id < static_cast<int>(role.actions.size()); ++id) {
    const Action& a = role.actions[id];
    if (completes(a) && a.part == index) backwards.push_back(id);
    if (is_reduction(a) && overlap(a.slice, s)) reductions.push_back(id);
    if (a.verb == Verb::update && overlap(a.slice, s)) updates.push_back(id);
  }
  auto name = fmt::format("role {}: gradient [{}, {}) of part {} ('{}')", role.name, s.begin, s.end, index, part.name);
  if (data_ranks > 1 && reductions.empty())
    faults.add("{} is never reduced over the {} ranks that share the batch: use data_parallel()", name, data_ranks);
  if (data_ranks > 1 && reductions.size() > 1)
    faults.add("{} is reduced {} times, by actions {}", name, reductions.size(), fmt::join(reductions, ", "));
  if (updates.empty()) faults.add("{} updates nothing", name);
  if (updates.size() > 1)
    faults.add("{} is used by {} updates, actions {}", name, updates.size(), fmt::join(updates, ", "));
  for (ActionId r : reductions)
    for (ActionId b : backwards)
      if (!order(b, r))
        faults.add("{} is reduced by action {} before the backward that completes it, action {}", name, r, b);
  for (ActionId u : updates) {
    for (ActionId r : reductions)
      if (!order(r, u)) faults.add("{} is used by the update, action {}, before its reduction, action {}", name, u, r);
    for (ActionId b : backwards)
      if (!order(b, u))
        faults.add("{} is used by the update, action {}, before the backward that completes it, action {}", name, u, b);
  }
}

void check_gradients(const Plan& plan, const std::vector<Order>& orders, int data_ranks, Faults& faults) {
  for (std::size_t r = 0; r < plan.roles.size(); ++r) {
    const Role& role = plan.roles[r];
    for (int p = 0; p < static_cast<int>(plan.parts.size()); ++p) {
      const Slice whole = plan.parts[p].slice;
      bool ours = std::any_of(role.actions.begin(), role.actions.end(),
                              [&](const Action& a) { return completes(a) && a.part == p; });
      if (!ours || whole.size() <= 0) continue;
      std::vector<Index> cuts = {whole.begin, whole.end};
      for (auto& a : role.actions)
        if (is_reduction(a) || a.verb == Verb::update)
          for (Index cut : {a.slice.begin, a.slice.end})
            if (whole.begin < cut && cut < whole.end) cuts.push_back(cut);
      std::sort(cuts.begin(), cuts.end());
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
        if (cuts[i] < cuts[i + 1])
          check_stretch(role, orders[r], plan.parts[p], p, {cuts[i], cuts[i + 1]}, data_ranks, faults);
    }
  }
}

}  // namespace

std::vector<std::string> check(const Plan& plan, int data_ranks) {
  Faults faults;
  if (plan.roles.empty()) faults.add("the plan has no role");
  check_shape(plan, faults);
  if (!faults.empty()) return faults.take();  // the rest follows the ids
  std::vector<Order> orders;
  for (auto& role : plan.roles) {
    orders.emplace_back(role);
    if (!orders.back().cycle().empty()) faults.add("{}", orders.back().cycle());
  }
  if (!faults.empty()) return faults.take();
  check_passes(plan, orders, collect_passes(plan, faults), faults);
  check_gradients(plan, orders, data_ranks, faults);
  auto lines = faults.take();
  check_messages(plan, data_axis(plan), data_ranks, lines);
  return lines;
}

}  // namespace trireme
