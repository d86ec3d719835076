// The part of check(plan) that finds races: two actions of a program that touch the same operand, one of them writing
// it, while neither waits for the other.
#include <map>
#include <set>
#include <tuple>

#include "parallel/plan/check/diagnostics.h"
#include "parallel/plan/operands.h"

namespace trireme {
namespace {

/// The first operand of `a` that overlaps an operand of `b`, one of the two being written; null: none.
const Operand* common(const std::vector<Operand>& a, const std::vector<Operand>& b) {
  for (const bool written : {true, false})
    for (const Operand& x : a)
      for (const Operand& y : b)
        if (x.written == written && (written || y.written) && x.overlaps(y)) return &x;
  return nullptr;
}

/// Actions in list order, by stream.
using Ids = std::array<std::vector<ActionId>, 2>;

/// Finds the races of a program. All actions of `compute` are in order, so one action of a race is of `comm`. The later
/// actions of a stream that have no order with an action are consecutive.
class Races {
 public:
  Races(const Plan& plan, const Program& program, const HappensBefore& order)
      : program_(program), order_(order), accesses_(accesses(plan, program)) {
    for (const std::vector<Operand>& operands : accesses_)
      for (const Operand& o : operands)
        if (is_slice(o.kind)) borders_[name_of(o)].insert({o.slice.begin, o.slice.end});
    for (ActionId id = 0; id < std::ssize(accesses_); ++id)
      for (const Operand& o : accesses_[id]) enter(id, o);
  }

  void report(Diagnostics& faults) {
    for (const auto& [piece, users] : users_)
      for (const ActionId id : users.all[comm]) {
        const bool writes = std::ranges::binary_search(users.writers[comm], id);
        const Ids& others = writes ? users.all : users.writers;
        const auto before = [&](ActionId other) { return order_(other, id); };
        pair(id, std::ranges::partition_point(others[compute], before), others[compute].end());
        pair(id, std::ranges::upper_bound(others[comm], id), others[comm].end());
      }
    for (const auto& [a, b] : found_)
      if (const Operand* both = common(accesses_[a], accesses_[b]))
        faults.add("{} and {} both touch the {}, and neither waits for the other", place(program_, a),
                   place(program_, b), to_string(*both));
  }

 private:
  static constexpr std::size_t compute = 0, comm = 1;
  using Name = std::tuple<OperandKind, std::string, int, int, int, int>;  // all members of an operand but its slice
  struct Users {
    Ids all, writers;
  };

  static Name name_of(const Operand& o) {
    if (is_slice(o.kind)) return {o.kind, o.name, o.version, -1, 0, 0};
    return {o.kind, o.name, o.version, o.part, o.microbatch.index, o.microbatch.steps_ago};
  }
  /// Enters the action as a user of the operand; of a slice, as a user of each piece between neighbouring borders.
  void enter(ActionId id, const Operand& o) {
    const Name name = name_of(o);
    if (!is_slice(o.kind)) return enter(id, users_[{name, 0}], o.written);
    const std::set<Index>& borders = borders_.at(name);
    auto at = borders.find(o.slice.begin);
    do enter(id, users_[{name, *at}], o.written);
    while (++at != borders.end() && *at < o.slice.end);
  }
  void enter(ActionId id, Users& users, bool writes) const {
    const auto stream = static_cast<std::size_t>(program_.actions[id].stream);
    for (Ids* ids : {&users.all, writes ? &users.writers : &users.all})
      if (auto& list = (*ids)[stream]; list.empty() || list.back() != id) list.push_back(id);
  }
  /// Pairs the action with others of a stream, up to the first that waits for it.
  void pair(ActionId id, std::vector<ActionId>::const_iterator other, std::vector<ActionId>::const_iterator end) {
    for (; other != end && !order_(id, *other); ++other) found_.insert(std::minmax(id, *other));
  }

  const Program& program_;
  const HappensBefore& order_;
  const std::vector<std::vector<Operand>> accesses_;  // by action
  std::map<Name, std::set<Index>> borders_;           // where slices begin and end
  std::map<std::pair<Name, Index>, Users> users_;     // by the piece's begin
  std::set<std::pair<ActionId, ActionId>> found_;     // the lower id first
};

}  // namespace

void check_races(const Plan& plan, const std::vector<HappensBefore>& orders, Diagnostics& faults) {
  for (std::size_t r = 0; r < plan.programs.size(); ++r) Races(plan, plan.programs[r], orders[r]).report(faults);
}

}  // namespace trireme
