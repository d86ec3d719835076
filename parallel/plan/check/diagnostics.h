// Diagnostics: the faults that the checks of a plan have found; and the happens-before order of its actions.
#pragma once
#include <fmt/format.h>

#include <array>
#include <set>
#include <string>
#include <vector>

#include "parallel/plan/action_kind.h"

namespace trireme {

class Diagnostics {
 public:
  template <class... A>
  void add(fmt::format_string<A...> text, A&&... args) {
    auto line = fmt::format(text, std::forward<A>(args)...);
    if (seen_.insert(line).second) messages_.push_back(std::move(line));
  }
  std::size_t size() const { return messages_.size(); }
  bool empty() const { return messages_.empty(); }
  std::vector<std::string> take() { return std::move(messages_); }

 private:
  std::vector<std::string> messages_;
  std::set<std::string> seen_;
};

inline std::string place(const Program& program, ActionId id) {
  return fmt::format("program {}, action {} ({})", program.name, id, to_string(program.actions[id]));
}

/// Which actions of a program have finished before another may start: the happens-before order (Lamport, CACM 1978).
/// Two streams run the actions, so that two ids for each action say all: the first action of each stream that it
/// precedes.
class HappensBefore {
 public:
  explicit HappensBefore(const Program&);
  bool operator()(ActionId a, ActionId b) const { return b >= precedes_[a][stream_[b]]; }
  /// The same in whatever steps they run: a of what came in with one step, b of what comes in `later` steps after.
  bool across_steps(ActionId a, ActionId b, int later = 0) const {
    const int when = steps_ago_[a], then = steps_ago_[b] + later;
    return when < then || (when == then && (*this)(a, b));
  }
  const std::string& cycle() const { return cycle_; }  ///< empty: none

 private:
  using Firsts = std::array<ActionId, 2>;  // by stream
  class Walk;

  std::vector<std::uint8_t> stream_;  // of each action
  std::vector<int> steps_ago_;        // of each action's micro-batch
  std::vector<Firsts> precedes_;      // the first actions that start once it has finished
  std::string cycle_;
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
/// Channels (parallel/async/check): messages that no rank takes or sends, servers that would wait, phases and guards
/// that can never be met.
void check_channels(const Plan&, Diagnostics&);
/// The faults of channels that only steps show: plays some steps of the programs along one axis.
void play_channels(const Plan&, const std::string& axis, Diagnostics&);
/// Phases on call: what is not there, and programs that would wait for each other in them.
void check_on_call(const Plan&, Diagnostics&);
/// Messages without a partner, messages that cross, collectives that differ between programs, and deadlocks.
void check_messages(const Plan&, Diagnostics&);

}  // namespace trireme
