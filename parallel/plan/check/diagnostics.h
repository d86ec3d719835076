// Diagnostics: the list of faults that check(plan) collects. HappensBefore: the order of a program's actions. Also
// declares the parts of check(plan), each in its own file.
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
/// There are two streams, so two ids per action suffice: the first action of each stream that starts after it.
class HappensBefore {
 public:
  explicit HappensBefore(const Program&);
  bool operator()(ActionId a, ActionId b) const { return b >= precedes_[a][stream_[b]]; }
  /// The same for actions of different steps: a works on micro-batches that entered in one step, b on micro-batches
  /// that entered `later` steps after.
  bool across_steps(ActionId a, ActionId b, int later = 0) const {
    const int when = steps_ago_[a], then = steps_ago_[b] + later;
    return when < then || (when == then && (*this)(a, b));
  }
  const std::string& cycle() const {
    return cycle_;
  }  ///< actions that wait for one another in a circle, as text; empty: none

 private:
  using Firsts = std::array<ActionId, 2>;  // by stream
  class Walk;

  std::vector<std::uint8_t> stream_;  // of each action
  std::vector<int> steps_ago_;        // of each action's micro-batch
  std::vector<Firsts> precedes_;      // the first actions that start once it has finished
  std::string cycle_;
};

/// Forward, backward, messages and frees: each runs once per part and micro-batch, in the order of the chain rule, and
/// its inputs are on its rank.
void check_flow(const Plan&, const std::vector<HappensBefore>&, Diagnostics&);
/// Shards: reduced, updated and gathered as the same slices, and no weight used while it is dropped.
void check_shards(const Plan&, const std::vector<HappensBefore>&, Diagnostics&);
/// Actions that touch the same operand, one of them writing it, in no order.
void check_races(const Plan&, const std::vector<HappensBefore>&, Diagnostics&);
/// Weights that differ between ranks after a step (Plan::consistency), and custom kinds, codecs and states.
void check_consistency(const Plan&, Diagnostics&);
/// Versions of weights: kept until their last use, the same for all passes of a micro-batch, no older than promised.
void check_versions(const Plan&, Diagnostics&);
/// Tied weights with copies in several programs: gradients must be summed over all copies once, between backward and
/// update, and the copies must stay equal.
void check_ties(const Plan&, const std::vector<HappensBefore>&, Diagnostics&);
/// Channels (parallel/async/check): messages that no rank takes or sends, servers that would wait, phases and guards
/// that can never be met.
void check_channels(const Plan&, Diagnostics&);
/// Faults of channels that depend on the order of messages: simulates some steps of the programs along one axis.
void play_channels(const Plan&, const std::string& axis, Diagnostics&);
/// Phases on call: names that do not exist, and programs that would wait for each other.
void check_on_call(const Plan&, Diagnostics&);
/// Messages without a partner, messages that cross, collectives that differ between programs, and deadlocks.
void check_messages(const Plan&, Diagnostics&);

}  // namespace trireme
