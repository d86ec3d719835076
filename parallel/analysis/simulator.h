// Simulator: the events of simulated steps in integer nanoseconds.
#pragma once
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "parallel/analysis/collective_messages.h"
#include "parallel/analysis/sim_jitter.h"
#include "parallel/analysis/sim_places.h"
#include "parallel/analysis/sim_record.h"
#include "parallel/async/inbox.h"
#include "parallel/plan/interpreter.h"
#include "parallel/plan/peers.h"

namespace trireme {

/// The mailbox of a rank whose program is started by messages.
class SimServer {
 public:
  struct Message {
    Nanoseconds arrival;
    int from, sender;  // rank; coordinate along the axis of messages
    int channel;       // index into SimPrograms::channels
    std::int64_t clock;
  };
  /// coordinate: of this rank.
  SimServer(const SimPrograms& plan, const Program& program, int coordinate)
      : channels_(plan.channels), inbox_(plan.plan, program, coordinate) {}
  void post(const Message& m);
  /// Arrival of the first message that it has not taken.
  std::optional<Nanoseconds> next_arrival() const;
  /// Takes a message that has arrived by now, from senders in turn, as recv_any does. Returns false if there is none.
  bool take(Nanoseconds now);
  /// The phase that the taken messages start; -1: it waits for more messages.
  int next_phase();
  /// The current phase, and the ranks whose messages started it.
  int phase() const { return start_.phase; }
  const std::vector<int>& senders() const { return senders_; }
  /// Number of its current step, as in the executor: its updates before the step began.
  int step() const { return step_; }
  void updated() { ++updates_; }
  int updates() const { return updates_; }
  void end_step() { step_ = updates_; }

 private:
  const std::vector<std::string>& channels_;
  Inbox inbox_;
  std::map<int, std::deque<Message>> mail_;           // by sender
  std::set<std::pair<Nanoseconds, int>> on_its_way_;  // of each sender's first message: arrival and sender
  std::set<int> here_;                                // other senders with arrived messages
  int turn_ = 0;                                      // next sender in turn, among those with arrived messages
  std::vector<int> from_;                             // by message
  Inbox::Start start_{-1, {}};
  std::vector<int> senders_;
  int updates_ = 0, step_ = 0;
};

/// Simulated ranks, each run by an Interpreter. They are all ranks of the mesh, or, if folded, one rank of each
/// program. For a folded rank, the actions of other ranks along other axes happen at the same moment as its own.
///
/// A rank advances on its own, possibly ahead of others, until it waits for an event without a known end. Only a
/// server's query for messages depends on all other ranks: it is answered when all others wait, the earliest one first.
class Simulator {
 public:
  /// All arguments must outlive it.
  Simulator(const SimPrograms&, const Places&, const SimRanks&, SimRecord&);
  /// Runs to the end. Returns a rank and its action that never ends: action -1 for a rank that waits for messages to
  /// start it; (-1, -1): all have ended.
  std::pair<int, ActionId> run();
  /// Time at which the last rank ends its last step.
  Nanoseconds end() const;

 private:
  static constexpr int nothing = std::numeric_limits<int>::max();  // told_
  static constexpr Nanoseconds unknown = -1;
  struct State {                  // state of an action in a rank's current step
    Nanoseconds begin = unknown;  // start
    Nanoseconds end = unknown;    // of a receive that has not started: the arrival
    Nanoseconds from : 63 = 0;    // of a call: time from which all its ranks, or the sender, have started it
    bool copied : 1 = false;      // copying(), or SimAction::mixes, is in it
    /// Whether this is the first call.
    bool copies() {
      const bool first = !copied;
      copied = true;
      return first;
    }
  };
  static_assert(sizeof(State) == 24);  // there are millions, and reading them takes most of the time
  using Handing = std::tuple<Nanoseconds, int, ActionId>;
  using Look = std::pair<Nanoseconds, int>;  // time and rank of a server's query
  struct RankLink {
    Nanoseconds free = 0;         // end of the known operations
    bool waits = false;           // a collective is at the head that other ranks have not reached
    std::vector<ActionId> queue;  // operations after the head
    std::size_t head = 0;
  };
  struct Pending {  // a collective in progress
    int come = 0;
    Nanoseconds latest = 0;  // of its links
    Nanoseconds from = 0;    // the last of its ranks has started it
  };
  struct Arrival {  // arrival of a message
    Nanoseconds when;
    Nanoseconds from;  // start by its sender
  };
  struct Trade {
    Nanoseconds end;        // end of its own messages
    Nanoseconds begun;      // start by the last of its ranks
    std::vector<int> from;  // ranks
  };
  struct Box {                       // mailbox of one kind of messages to one rank
    std::deque<Arrival> come;        // arrived before the receiver started to receive
    std::deque<ActionId> waiting{};  // pulls that have begun
  };
  /// The interface that an Interpreter needs of a rank.
  struct Rank {
    Simulator& sim;
    const int number;
    int actions() const { return static_cast<int>(std::ssize(sim.actions(number))); }
    std::span<const ActionId> after(ActionId id) const { return sim.actions(number)[id].after; }
    bool is_inline(ActionId id) const {
      const SimAction& a = sim.actions(number)[id];
      return a.is_inline || sim.hands_over(a);
    }
    bool runs(ActionId id) const { return sim.runs(number, sim.actions(number)[id]); }
    bool start(ActionId id) {
      sim.start(number, id);
      return true;
    }
    bool wait(ActionId id) { return sim.wait(number, id); }
    bool serves() const { return sim.servers_[number] != nullptr; }
    int next_phase() { return sim.next_phase(number); }
    bool ends(int phase) const { return sim.program(number).phases[phase].last; }
  };

  State& at(int rank, ActionId id) { return states_[first_[rank] + id]; }
  const std::vector<SimAction>& actions(int rank) const { return plan_.programs[ranks_.program[rank]].actions; }
  const Program& program(int rank) const { return plan_.plan.programs[ranks_.program[rank]]; }
  const RankLines& lines(int axis) const { return ranks_.folded ? lines_[axis] : places_.lines(axis); }
  Nanoseconds took(int rank, const SimAction& a) const {
    return a.calls.empty() ? a.took[places_.between(ranks_.world[rank], a)] : by_messages(rank, a);
  }
  Nanoseconds by_messages(int rank, const SimAction&) const;
  Nanoseconds cost(int rank, ActionId id) const;
  int step_of(int rank) const { return servers_[rank] ? servers_[rank]->step() : step_[rank]; }
  bool runs(int rank, const SimAction&) const;

  /// Whether the second of a message's ranks copies it (SimulateOptions::second_copies).
  bool hands_over(const SimAction& a) const {
    return second_copies_ && a.is == SimAction::Is::send && !a.ahead && !a.trades;
  }

  void begin_step(int rank);
  void end_step(int rank);
  void go_on(int rank);
  void settle();
  void carry_on(int rank);
  void wait_until(int rank, const SimAction&, Nanoseconds end, Nanoseconds from);
  void start(int rank, ActionId id);
  bool wait(int rank, ActionId id);
  /// from: 0 for the action of a sender, which waits after it has started it.
  void finish(int rank, ActionId id, Nanoseconds when, Nanoseconds from = 0);
  void enqueue(int rank, ActionId id, Nanoseconds now, double computed = 0);
  void exchange(int rank, ActionId id);
  void carry(int rank, ActionId id);
  std::vector<RankPair> pairs_of(int rank, const SimAction&) const;
  Nanoseconds linked(int rank, const SimAction&) const;
  /// SimAction::mixes on the rank's device, without jitter.
  Nanoseconds mixing(int rank, const SimAction& a) const {
    return a.mixes == 0 ? 0 : std::llround(static_cast<double>(a.mixes) / plan_.cluster.speed_of(ranks_.world[rank]));
  }
  void hand_over(int rank, ActionId id);
  void trade(int rank, ActionId id, Nanoseconds ready);
  void end_trade(int rank, ActionId id);
  void meet(int rank, const SimAction&, Nanoseconds begin);
  Nanoseconds copying(int rank, const SimAction&) const;
  void arrive(int rank, ActionId id, Arrival);
  void pull(int rank, ActionId id);
  void deliver(int from, int to, const SimAction&, Arrival);
  void look(int rank, Nanoseconds now);
  int next_phase(int rank);
  void answer(int rank, ActionId id, int to);
  void handle(int rank, ActionId id);

  const SimPrograms& plan_;
  const Places& places_;
  const SimRanks& ranks_;
  SimRecord& record_;
  const int steps_;
  const Nanoseconds overhead_, between_steps_;
  const bool overlaps_, second_copies_;
  std::optional<SimJitter> jitter_;                                             // if folded, with jitter
  std::optional<CollectiveMessages> messages_;                                  // SimulateOptions::collectives
  mutable std::map<std::tuple<int, int, int>, std::vector<Nanoseconds>> took_;  // by axis, program and nth: of each
                                                                                // line
  RankGrid grid_;                                                               // of the simulated ranks
  std::vector<RankLines> lines_;                                                // folded: by axis
  std::vector<std::size_t> each_;                    // by axis: most collectives of a rank along it
  std::vector<std::vector<Pending>> pending_;        // by axis; by line, then by SimAction::nth
  std::vector<std::size_t> first_;                   // first of each rank's actions in states_
  std::vector<State> states_;                        // rank by rank
  std::vector<RankLink> links_;                      // by rank
  std::vector<Interpreter<Rank>> interpreters_;      // by rank
  std::vector<Nanoseconds> clock_;                   // by rank: current time
  std::map<int, Nanoseconds> answers_;               // to exchanges in progress, by rank
  std::vector<int> step_;                            // by rank: number of earlier steps
  std::vector<ActionId> waits_;                      // by rank: awaited action; -1: none
  std::vector<int> resumes_, told_;                  // by rank: step with which it resumes; least clock of this step
  std::vector<std::unique_ptr<SimServer>> servers_;  // by rank; null: no server
  /// Key: rank, -1 - and the receive, channel and sender; or -2 minus a trading action, and the sender.
  std::map<std::tuple<int, int, int>, Box> boxes_;
  std::map<std::pair<int, ActionId>, Trade> trades_;  // in progress, by rank
  std::priority_queue<Look, std::vector<Look>, std::greater<>> looks_;
  /// Messages to be delivered, by time: rank and action.
  std::priority_queue<Handing, std::vector<Handing>, std::greater<>> sends_;
  std::vector<int> freed_;  // ranks whose queue may continue
  std::vector<int> ready_;  // ranks that have not begun, or whose awaited action has ended
};

}  // namespace trireme
