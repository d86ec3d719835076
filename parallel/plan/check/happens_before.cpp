// HappensBefore: found in one pass over the dependencies, from the last action to the first.
#include "parallel/plan/check/diagnostics.h"
#include "parallel/plan/check/order.h"

namespace trireme {

/// Sorts the actions of a program by their dependencies, and finds a cycle.
class HappensBefore::Walk {
 public:
  Walk(const Program& program, std::string& cycle)
      : program_(program), waits_(dependencies(program)), state_(waits_.size()), cycle_(cycle) {
    for (ActionId id = 0; id < std::ssize(waits_) && cycle_.empty(); ++id) visit(id);
  }
  /// The actions, each after the actions that it waits for.
  const std::vector<ActionId>& sorted() const { return sorted_; }
  const std::vector<Dependency>& waits(ActionId id) const { return waits_[id]; }

 private:
  enum class State : std::uint8_t { unseen, open, done };
  void visit(ActionId id) {
    if (state_[id] == State::done || !cycle_.empty()) return;
    if (state_[id] == State::open) {
      cycle_ = fmt::format("deadlock: {} waits for itself, through `after` and the order of its stream",
                           place(program_, id));
      return;
    }
    state_[id] = State::open;
    for (const Dependency& d : waits_[id]) visit(d.on);
    state_[id] = State::done;
    sorted_.push_back(id);
  }

  const Program& program_;
  std::vector<std::vector<Dependency>> waits_;
  std::vector<State> state_;
  std::vector<ActionId> sorted_;
  std::string& cycle_;
};

HappensBefore::HappensBefore(const Program& program) {
  const int n = static_cast<int>(program.actions.size());
  precedes_.assign(n, {n, n});
  for (const Action& a : program.actions) {
    stream_.push_back(static_cast<std::uint8_t>(a.stream));
    steps_ago_.push_back(a.microbatch.steps_ago);
  }
  const Walk walk(program, cycle_);
  if (!cycle_.empty()) return;
  std::vector<Firsts> starts =
      precedes_;  // by action: the first actions of each stream that start after the action's start
  const auto lower = [](Firsts& all, const Firsts& to) {
    for (std::size_t s = 0; s < all.size(); ++s) all[s] = std::min(all[s], to[s]);
  };
  for (std::size_t i = walk.sorted().size(); i-- > 0;) {
    const ActionId id = walk.sorted()[i];
    ActionId& own = starts[id][stream_[id]];
    own = std::min(own, id);
    for (const Dependency& d : walk.waits(id)) {
      lower(starts[d.on], starts[id]);
      if (d.share > 0) lower(precedes_[d.on], starts[id]);  // messages and collectives of a stream only start in order
    }
  }
}

}  // namespace trireme
