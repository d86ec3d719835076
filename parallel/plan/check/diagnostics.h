// Diagnostics: the faults that the checks of a plan have found; and the happens-before order of its actions.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "parallel/plan/action_kind.h"
#include "parallel/plan/order.h"

namespace trireme {

class Diagnostics {
 public:
  template <class... A>
  void add(fmt::format_string<A...> text, A&&... args) {
    auto line = fmt::format(text, std::forward<A>(args)...);
    if (std::find(messages_.begin(), messages_.end(), line) == messages_.end()) messages_.push_back(std::move(line));
  }
  std::size_t size() const { return messages_.size(); }
  bool empty() const { return messages_.empty(); }
  std::vector<std::string> take() { return std::move(messages_); }

 private:
  std::vector<std::string> messages_;
};

inline std::string place(const Program& program, ActionId id) {
  return fmt::format("program {}, action {} ({})", program.name, id, to_string(program.actions[id]));
}

/// Which actions of a program have finished before another may start.
class HappensBefore {
 public:
  explicit HappensBefore(const Program& program)
      : program_(program),
        n_(static_cast<int>(program.actions.size())),
        waits_(dependencies(program)),
        before_(n_, std::vector<bool>(n_)) {
    std::vector<int> state(n_);
    for (ActionId id = 0; id < n_ && cycle_.empty(); ++id) visit(id, state);
  }
  bool operator()(ActionId a, ActionId b) const { return before_[b][a]; }
  const std::string& cycle() const { return cycle_; }  ///< empty: none

 private:
  void visit(ActionId id, std::vector<int>& state) {
    if (state[id] == 2 || !cycle_.empty()) return;
    if (state[id] == 1) {
      cycle_ = fmt::format("deadlock: {} waits for itself, through `after` and the order of its stream",
                           place(program_, id));
      return;
    }
    state[id] = 1;
    for (const Dependency& d : waits_[id]) {
      visit(d.on, state);
      for (int i = 0; i < n_; ++i)
        if (before_[d.on][i]) before_[id][i] = true;
      if (d.share > 0) before_[id][d.on] = true;  // messages and collectives of a stream only start in order
    }
    state[id] = 2;
  }

  const Program& program_;
  int n_;
  std::vector<std::vector<Dependency>> waits_;
  std::vector<std::vector<bool>> before_;
  std::string cycle_;
};

/// Which actions of a program, both for what came in with one step, have finished before others may start, in whatever
/// steps they run.
class OfOneStep {
 public:
  OfOneStep(const Plan& plan, const Program& program, const HappensBefore& order)
      : plan_(plan), program_(program), order_(order) {}
  /// later: b is of what comes in so many steps behind a's.
  bool operator()(ActionId a, ActionId b, int later = 0) const {
    const int when = back(a), then = back(b) + later;
    return when < then || (when == then && order_(a, b));
  }

 private:
  int back(ActionId id) const { return program_.actions[static_cast<std::size_t>(id)].microbatch.steps_ago; }

  const Plan& plan_;
  const Program& program_;
  const HappensBefore& order_;
};

/// Forward, backward, messages and frees: every part and micro-batch once, in the order of the chain rule, with what it
/// needs at hand.
void check_flow(const Plan&, const std::vector<HappensBefore>&, Diagnostics&);
/// Shards: reduced, updated and gathered as the same slices, and no weight used while it is dropped.
void check_shards(const Plan&, const std::vector<HappensBefore>&, Diagnostics&);
/// Actions that touch the same operand, one of them writing it, in no order.
void check_races(const Plan&, const std::vector<HappensBefore>&, Diagnostics&);
/// Weights that are not alike after every step, and what kinds and codecs of the caller's own promise.
void check_consistency(const Plan&, Diagnostics&);
/// Versions of weights: read while they are kept, the same by a micro-batch's passes, no older than is promised.
void check_versions(const Plan&, Diagnostics&);
/// Weights with copies in several programs: gradients that are summed over all of them, once, at the right moment, and
/// copies that stay alike.
void check_ties(const Plan&, const std::vector<HappensBefore>&, Diagnostics&);
/// Ranges of ranks that overlap, leave ranks without a program, or lie outside of the mesh.
void check_places(const Plan&, Diagnostics&);
/// Channels: messages that nobody takes or sends, servers that would wait, phases and guards that can never be met.
void check_channels(const Plan&, Diagnostics&);
/// What of this shows only where steps are taken, along one axis: some steps of its programs are played.
void play_channels(const Plan&, const std::string& axis, Diagnostics&);
/// Phases on call: what is not there, and programs that would wait for each other in them.
void check_on_call(const Plan&, Diagnostics&);
/// Messages without a partner, messages that cross, collectives that differ between programs, and deadlocks.
void check_messages(const Plan&, const std::string& data_axis, int data_ranks, Diagnostics&);

}  // namespace trireme
