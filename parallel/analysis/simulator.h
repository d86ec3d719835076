// Simulator: a discrete-event simulation of the steps of a plan, in integer nanoseconds. simulate() (simulate.h) calls
// it. Its arguments, the programs, places and ranks, are described in sim_programs.h, sim_places.h and sim_record.h.
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

/// The mailbox of a simulated server: a rank whose phases messages start.
class SimServer {
 public:
  /// A message to the server.
  struct Message {
    Nanoseconds arrival;  // time at which the server may take it
    int sender;           // the sender's coordinate along the axis of messages
    int channel;          // index into SimPrograms::channels
    std::int64_t clock;   // the sender's step
  };
  /// coordinate: of the server along the axis of messages.
  SimServer(const SimPrograms& plan, const Program& program, int coordinate)
      : channels_(plan.channels), inbox_(plan.plan, program, coordinate) {}
  void post(const Message& m);  ///< adds a message
  /// Arrival of the earliest message that the server has not taken; 0: a message has arrived already; none: no message.
  std::optional<Nanoseconds> next_arrival() const;
  /// Takes one message that has arrived by `now`, from senders in turn, as Communicator::recv_any() does. Returns false
  /// if there is none.
  bool take(Nanoseconds now);
  /// The phase that the taken messages start; -1: the server needs more messages.
  int next_phase();
  int phase() const { return start_.phase; }                    ///< the current phase
  const std::vector<int>& senders() const { return senders_; }  ///< coordinates of the ranks that started that phase
  int step() const { return step_; }                            ///< number of updates before the current step
  void updated() { ++updates_; }                                ///< counts an update
  int updates() const { return updates_; }                      ///< number of updates so far
  void end_step() { step_ = updates_; }                         ///< the next phase begins a step

 private:
  const std::vector<std::string>& channels_;
  Inbox inbox_;
  std::map<int, std::deque<Message>> mail_;           // by sender: messages that the server has not taken
  std::set<std::pair<Nanoseconds, int>> on_its_way_;  // senders whose first message has not arrived: arrival, sender
  std::set<int> here_;                                // senders whose first message has arrived
  int turn_ = 0;                                      // least sender from which the next message is taken
  std::vector<int> from_;                             // by taken message: Message::sender
  Inbox::Start start_{-1, {}};
  std::vector<int> senders_;
  int updates_ = 0, step_ = 0;
};

/// Simulated ranks, each run by an Interpreter. They are all ranks of the mesh or, if SimRanks::folded, one rank of
/// each program. A folded rank stands for the program's other ranks, whose actions happen at the same time.
///
/// Each rank has its own clock. A rank runs until it waits for an event whose time is not known yet, so its clock may
/// be ahead of other clocks. Only a server depends on the order of all ranks: it takes its next message when all other
/// ranks wait; of several servers, the one whose message is earliest goes first.
class Simulator {
 public:
  /// All arguments must outlive it.
  Simulator(const SimPrograms&, const Places&, const SimRanks&, SimRecord&);
  /// Simulates SimulateOptions::steps steps. Returns (-1, -1) if all ranks have ended them; else a rank that waits
  /// forever, and the action for which it waits (-1: a server waits for messages).
  std::pair<int, ActionId> run();
  /// Time at which the last rank ends its last step. Call it after run().
  Nanoseconds end() const;

 private:
  static constexpr int nothing = std::numeric_limits<int>::max();  // value of told_: no clock
  static constexpr Nanoseconds unknown = -1;
  struct State {                  // state of an action in a rank's current step
    Nanoseconds begin = unknown;  // start
    Nanoseconds end = unknown;    // end; before a receive has started: the arrival of its message
    Nanoseconds from : 63 = 0;    // collective, message: time from which all its ranks, or the sender, have started it
    bool copied : 1 = false;      // `end` includes copying(), or SimAction::mixes
    /// Sets copied. Returns whether it was not set before.
    bool copies() {
      const bool first = !copied;
      copied = true;
      return first;
    }
  };
  static_assert(sizeof(State) == 24);  // there are millions, and reading them takes most of the time
  /// A call to make once all other ranks wait or are at later times: time, rank, and the send to hand_over() or the
  /// exchange() to make; -1: the rank is a server that may look() for a message.
  using Later = std::tuple<Nanoseconds, int, ActionId>;
  struct RankLink {               // the network link of a rank, which carries out one operation after another
    Nanoseconds free = 0;         // time from which the link is free
    bool waits = false;           // the current operation is a collective that other ranks have not started
    std::vector<ActionId> queue;  // operations of the step; those from `head` on have not begun
    std::size_t head = 0;
  };
  struct Pending {           // a collective that some ranks have started
    int come = 0;            // number of these ranks
    Nanoseconds latest = 0;  // time from which they and their links are ready
    Nanoseconds from = 0;    // latest start by a rank
  };
  struct Arrival {     // arrival of a message
    Nanoseconds when;  // time of the arrival
    Nanoseconds from;  // start by its sender
  };
  struct Trade {            // an exchange of a rank with its partners (SimAction::trades), in progress
    Nanoseconds end;        // end of its own messages; then of the latest message that arrived
    Nanoseconds begun;      // latest start by a rank of the exchange
    std::vector<int> from;  // ranks whose messages it waits for
  };
  struct Asked {                      // exchanges of a rank, SimAction::ahead
    bool open = false;                // active: its last message has no answer yet
    Nanoseconds answer = 0;           // active: arrival of the last answer
    ActionId waits = -1;              // active: the exchange that waits for it; -1: none
    std::map<int, Nanoseconds> come;  // passive: messages to answer, by sender: arrival
    int turn = 0;                     // passive: least sender that it answers next
    const SimAction* how = nullptr;   // passive: the senders' action
    bool flushed = false;             // passive: it has ended its steps, and answers at once
  };
  struct Box {                       // messages of one kind to one rank
    std::deque<Arrival> come;        // messages that no receive or pull has taken
    std::deque<ActionId> waiting{};  // pulls that wait for a message
  };
  /// The functions that an Interpreter calls for a rank.
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

  // In all functions `rank` is the index of a simulated rank, and `id` an action of its program.
  State& at(int rank, ActionId id) { return states_[first_[rank] + id]; }
  const std::vector<SimAction>& actions(int rank) const { return plan_.programs[ranks_.program[rank]].actions; }
  const Program& program(int rank) const { return plan_.plan.programs[ranks_.program[rank]]; }
  const RankLines& lines(int axis) const { return ranks_.folded ? lines_[axis] : places_.lines(axis); }
  /// Duration of a call on the rank's link.
  Nanoseconds took(int rank, const SimAction& a) const {
    return a.calls.empty() ? a.took[places_.between(ranks_.world[rank], a)] : by_messages(rank, a);
  }
  Nanoseconds by_messages(int rank, const SimAction&) const;
  /// Duration of a computation, including the messages of its layers.
  Nanoseconds cost(int rank, ActionId id) const;
  int step_of(int rank) const { return servers_[rank] ? servers_[rank]->step() : step_[rank]; }
  bool runs(int rank, const SimAction&) const;

  /// Whether the rank that starts its end of a message last copies the message (SimulateOptions::second_copies).
  bool hands_over(const SimAction& a) const {
    return second_copies_ && a.is == SimAction::Is::send && !a.ahead && !a.trades;
  }

  // Steps of a rank.
  void begin_step(int rank);
  void end_step(int rank);
  void go_on(int rank);  // runs the rank until it waits for an event without a known time
  void wait_until(int rank, const SimAction&, Nanoseconds end, Nanoseconds from);  // advances the rank's clock to end
  void start(int rank, ActionId id);
  bool wait(int rank, ActionId id);
  /// Sets the end of an action, and wakes the rank if it waits for it. from: State::from; 0: unchanged.
  void finish(int rank, ActionId id, Nanoseconds when, Nanoseconds from = 0);

  // Operations of a rank's link.
  void enqueue(int rank, ActionId id, Nanoseconds now, double computed = 0);  // adds an operation
  void carry_on(int rank);                     // carries out operations until one must wait for other ranks
  void carry(int rank, ActionId id);           // carries out one operation
  void exchange(int rank, ActionId id);        // SimAction::ahead
  void answer_all(int rank, Nanoseconds now);  // a passive rank answers what has come
  std::vector<RankPair> pairs_of(int rank, const SimAction&) const;
  Nanoseconds linked(int rank, const SimAction&) const;
  /// SimAction::mixes on the rank's device, without jitter.
  Nanoseconds mixing(int rank, const SimAction& a) const {
    return a.mixes == 0 ? 0 : std::llround(static_cast<double>(a.mixes) / plan_.cluster.speed_of(ranks_.world[rank]));
  }
  void hand_over(int rank, ActionId id);                     // a send for which hands_over()
  void trade(int rank, ActionId id, Nanoseconds ready);      // SimAction::trades: sends
  void end_trade(int rank, ActionId id);                     // ends it if all messages of partners have arrived
  void meet(int rank, const SimAction&, Nanoseconds begin);  // a rank starts a collective; the last rank ends it
  Nanoseconds copying(int rank, const SimAction&) const;
  void arrive(int rank, ActionId id, Arrival);                // a message reaches the receive `id`
  void pull(int rank, ActionId id);                           // receives from a channel
  void deliver(int from, int to, const SimAction&, Arrival);  // a message on a channel

  // Servers (simulator_servers.cpp).
  void look(int rank, Nanoseconds now);  // an idle server takes a message
  int next_phase(int rank);
  void answer(int rank, ActionId id, int to);  // sends a message to one rank
  void handle(int rank, ActionId id);          // carries out an action

  const SimPrograms& plan_;
  const Places& places_;
  const SimRanks& ranks_;
  SimRecord& record_;
  const int steps_;
  const Nanoseconds overhead_, between_steps_;
  const bool overlaps_, second_copies_;
  std::optional<SimJitter> jitter_;             // for folded ranks with jitter
  std::optional<CollectiveMessages> messages_;  // for SimulateOptions::collectives
  /// Results of by_messages(): by axis, program and SimAction::nth; then by line.
  mutable std::map<std::tuple<int, int, int>, std::vector<Nanoseconds>> took_;
  RankGrid grid_;                                    // of the simulated ranks
  std::vector<RankLines> lines_;                     // of folded ranks, by axis
  std::vector<std::size_t> each_;                    // by axis: largest number of collectives of a rank in a step
  std::vector<std::vector<Pending>> pending_;        // by axis; then by line and SimAction::nth
  std::vector<std::size_t> first_;                   // by rank: index of its first action in states_
  std::vector<State> states_;                        // rank by rank
  std::vector<RankLink> links_;                      // by rank
  std::vector<Interpreter<Rank>> interpreters_;      // by rank
  std::vector<Nanoseconds> clock_;                   // by rank: current time
  std::map<int, Asked> asked_;                       // by rank
  std::vector<int> step_;                            // by rank: number of steps that it has ended
  std::vector<ActionId> waits_;                      // by rank: the action that it waits for; -1: none
  std::vector<int> resumes_;                         // by rank: first step in which it runs all actions again
  std::vector<int> told_;                            // by rank: lowest clock that servers sent it in this step
  std::vector<std::unique_ptr<SimServer>> servers_;  // by rank; null: the rank is no server
  /// The first element of a key is the receiving rank. The others are: -1 and the receive; the channel and the sending
  /// rank; or -2 minus the action that trades, and the sending rank.
  std::map<std::tuple<int, int, int>, Box> boxes_;
  std::map<std::pair<int, ActionId>, Trade> trades_;                      // by rank and action
  std::priority_queue<Later, std::vector<Later>, std::greater<>> later_;  // earliest first
  std::vector<int> freed_;  // ranks whose link may carry out its next operation
  std::vector<int> ready_;  // ranks that may run: they have not begun, or the action that they waited for has ended
};

}  // namespace trireme
