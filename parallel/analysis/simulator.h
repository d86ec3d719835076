// Simulator: the events of simulated steps, in integer nanoseconds: when each action of each rank runs.
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

/// The messages to one rank of a program that messages start.
class SimServer {
 public:
  struct Message {
    Nanoseconds arrival;
    int from, sender;  // rank; coordinate along the axis of messages
    int channel;       // of SimPrograms::channels
    std::int64_t clock;
  };
  /// coordinate: its own.
  SimServer(const SimPrograms& plan, const Program& program, int coordinate)
      : channels_(plan.channels), inbox_(plan.plan, program, coordinate) {}
  void post(const Message& m);
  /// Of the first one that it has not taken.
  std::optional<Nanoseconds> next_arrival() const;
  /// Takes one that has come by now, as recv_any does: of the senders by turns. False: there is none.
  bool take(Nanoseconds now);
  /// What it does next with those that it has taken: the phase; -1: it waits for others.
  int next_phase();
  /// Of the program: what runs now, and the ranks that have sent the messages which started it.
  int phase() const { return start_.phase; }
  const std::vector<int>& senders() const { return senders_; }
  /// What it counts as its step, as the executor does: its updates before the step began.
  int step() const { return step_; }
  void updated() { ++updates_; }
  int updates() const { return updates_; }
  void end_step() { step_ = updates_; }

 private:
  const std::vector<std::string>& channels_;
  Inbox inbox_;
  std::map<int, std::deque<Message>> mail_;           // by sender
  std::set<std::pair<Nanoseconds, int>> on_its_way_;  // of the first of each sender's: arrival and sender
  std::set<int> here_;                                // the other senders that have mail
  int turn_ = 0;                                      // of this sender, or of the next one whose mail is here
  std::vector<int> from_;                             // by message
  Inbox::Start start_{-1, {}};
  std::vector<int> senders_;
  int updates_ = 0, step_ = 0;
};

/// Ranks whose time is simulated, each gone through by an Interpreter: they are all of the mesh, or, folded, one of
/// each program: then what others of its program would do along other axes happens to the rank itself at that moment.
///
/// A rank goes on by itself, in front of others too, until what it waits for has no known end. Only what a server finds
/// depends on what all others have done by then: it looks when these all wait, the earliest one first.
class Simulator {
 public:
  /// All must outlive it.
  Simulator(const SimPrograms&, const Places&, const SimRanks&, SimRecord&);
  /// The rank, and the action of it, that never end; the action is -1 for one that waits for messages that start
  /// something; (-1, -1): all have ended.
  std::pair<int, ActionId> run();
  /// When the last rank has ended its last step.
  Nanoseconds end() const;

 private:
  static constexpr int nothing = std::numeric_limits<int>::max();  // told_
  static constexpr Nanoseconds unknown = -1;
  struct State {                  // of an action of a rank in its step
    Nanoseconds begin = unknown;  // it has started
    Nanoseconds end = unknown;    // of a receive that has not started: the arrival
    Nanoseconds from : 63 = 0;    // of a call: since then all of its ranks, or the sender, have started it
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
  using Look = std::pair<Nanoseconds, int>;  // a server looks for messages: the time and the rank
  struct RankLink {
    Nanoseconds free = 0;         // when what is known to be in front of all else has ended
    bool waits = false;           // a collective is at the head that others have not come to
    std::vector<ActionId> queue;  // behind it
    std::size_t head = 0;
  };
  struct Pending {  // a collective
    int come = 0;
    Nanoseconds latest = 0;  // of its links
    Nanoseconds from = 0;    // the last of its ranks has started it
  };
  struct Arrival {  // of a message
    Nanoseconds when;
    Nanoseconds from;  // its sender has started it
  };
  struct Trade {
    Nanoseconds end;        // of its own messages
    Nanoseconds begun;      // the last of its ranks has started it
    std::vector<int> from;  // ranks
  };
  struct Box {                       // messages of one kind to one rank
    std::deque<Arrival> come;        // that it has not asked for
    std::deque<ActionId> waiting{};  // pulls that have begun
  };
  /// What an Interpreter asks of a rank.
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

  /// A message of which the second of its ranks copies (SimulateOptions::second_copies).
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
  std::optional<SimJitter> jitter_;                                             // folded, where there is some
  std::optional<CollectiveMessages> messages_;                                  // SimulateOptions::collectives
  mutable std::map<std::tuple<int, int, int>, std::vector<Nanoseconds>> took_;  // by axis, program and nth: each line's
  RankGrid grid_;                                                               // of the ranks that are simulated
  std::vector<RankLines> lines_;                                                // folded: by axis
  std::vector<std::size_t> each_;                // by axis: the most collectives of a rank along it
  std::vector<std::vector<Pending>> pending_;    // by axis; by line, then by SimAction::nth
  std::vector<std::size_t> first_;               // of each rank's actions in states_
  std::vector<State> states_;                    // rank by rank
  std::vector<RankLink> links_;                  // by rank
  std::vector<Interpreter<Rank>> interpreters_;  // by rank
  std::vector<Nanoseconds> clock_;               // by rank: so far it has come
  std::map<int, Nanoseconds> answers_;           // to exchanges under way, by rank
  std::vector<int> step_;                        // by rank: steps before this one
  std::vector<ActionId> waits_;                  // by rank: for this action; -1: for none
  std::vector<int> resumes_, told_;  // by rank: the step with which it goes on; the least clock of this step
  std::vector<std::unique_ptr<SimServer>> servers_;  // by rank; null: no server
  /// By rank; -1 and the receive, channel and sender, or -2 less an action that trades and the sender.
  std::map<std::tuple<int, int, int>, Box> boxes_;
  std::map<std::pair<int, ActionId>, Trade> trades_;  // under way, by rank
  std::priority_queue<Look, std::vector<Look>, std::greater<>> looks_;
  /// That hand over, by time: rank and action.
  std::priority_queue<Handing, std::vector<Handing>, std::greater<>> sends_;
  std::vector<int> freed_;  // ranks whose queue may go on
  std::vector<int> ready_;  // ranks that have not begun, or whose waits_ has ended
};

}  // namespace trireme
