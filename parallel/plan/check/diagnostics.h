// Diagnostics: the list of faults that check(plan) collects. HappensBefore: the order of a program's actions. The
// functions at the end are the parts of check(plan); each is in its own file and adds the faults that it finds.
#pragma once
#include <fmt/format.h>

#include <array>
#include <set>
#include <string>
#include <vector>

#include "parallel/plan/action_kind.h"

namespace trireme {

/// A list of faults, without repetitions.
class Diagnostics {
 public:
  /// Adds a fault, as a text in the form of fmt.
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

/// An action for messages: "program stage 0, action 3 (forward ...)".
inline std::string place(const Program& program, ActionId id) {
  return fmt::format("program {}, action {} ({})", program.name, id, to_string(program.actions[id]));
}

/// Which actions of a program have finished before another may start: the happens-before order (Lamport, CACM 1978).
/// There are two streams, so the class stores two ids per action: the first action of each stream that starts after it.
class HappensBefore {
 public:
  explicit HappensBefore(const Program&);
  /// Whether a has finished before b may start.
  bool operator()(ActionId a, ActionId b) const { return b >= precedes_[a][stream_[b]]; }
  /// The same for actions that may run in different steps: a works on a micro-batch of one step, and b on a micro-batch
  /// of the step `later` steps after it.
  bool across_steps(ActionId a, ActionId b, int later = 0) const {
    const int when = steps_ago_[a], then = steps_ago_[b] + later;
    return when < then || (when == then && (*this)(a, b));
  }
  /// The actions that wait for each other in a circle, as text; empty: none.
  const std::string& cycle() const { return cycle_; }

 private:
  using Firsts = std::array<ActionId, 2>;  // by stream
  class Walk;

  std::vector<std::uint8_t> stream_;  // of each action
  std::vector<int> steps_ago_;        // of each action's micro-batch
  std::vector<Firsts> precedes_;      // the first actions that start once it has finished
  std::string cycle_;
};

/// Forward, backward, messages and frees: each must run once per part and micro-batch, in the order of the chain rule,
/// with its inputs on its rank.
void check_flow(const Plan&, const std::vector<HappensBefore>&, Diagnostics&);
/// Shards: they must be reduced, updated and gathered as the same slices. No action may use weights that are dropped.
void check_shards(const Plan&, const std::vector<HappensBefore>&, Diagnostics&);
/// Races: of two actions with a common operand that one of them writes, one must happen before the other.
void check_races(const Plan&, const std::vector<HappensBefore>&, Diagnostics&);
/// Weights must be as equal between ranks as Plan::consistency promises. Also checks custom kinds, codecs and states.
void check_consistency(const Plan&, Diagnostics&);
/// Versions of weights: they must be kept until their last use, be the same for all passes of a micro-batch, and be no
/// older than Plan::consistency promises.
void check_versions(const Plan&, Diagnostics&);
/// Tied weights with copies in several programs: their gradients must be summed over all copies once, between backward
/// and update, and the copies must stay equal.
void check_ties(const Plan&, const std::vector<HappensBefore>&, Diagnostics&);
/// Channels (parallel/async/check): finds messages that no rank takes, messages that no rank sends, servers that would
/// wait forever, and phases and guards that can never run.
void check_channels(const Plan&, Diagnostics&);
/// Channels, again: simulates some steps of the programs along one axis, and finds faults that depend on the order of
/// messages.
void play_channels(const Plan&, const std::string& axis, Diagnostics&);
/// Phases on call: finds unknown names of phases, and programs that would wait for each other.
void check_on_call(const Plan&, Diagnostics&);
/// Finds messages without a partner, messages that cross, collectives that differ between programs, and deadlocks.
void check_messages(const Plan&, Diagnostics&);

}  // namespace trireme
