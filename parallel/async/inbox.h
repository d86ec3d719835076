// Inbox: the messages that have arrived at a rank whose phases messages start (a server), and the phase that they start
// next. The runtime, check() and simulate() use it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "parallel/async/channel_plan.h"
#include "parallel/async/tickets.h"

namespace trireme {

/// The messages of one server that no phase has taken, and the phases that they start. In a program that hands out
/// tickets, the inbox also keeps the queue of tickets: a gradient that an update takes completes its sender's ticket.
/// Tickets of late gradients return to the queue when their clock is over.
class Inbox {
 public:
  /// program of plan; root: the rank's coordinate along the axis of its messages. Both must outlive it.
  Inbox(const Plan& plan, const Program& program, int root);
  /// Adds a message. number: names the message in next(), and increases from message to message. sender: its
  /// coordinate. clock: the sender's step, which never decreases. Throws Error for a channel or a sender that the plan
  /// does not have.
  void add(std::size_t number, const std::string& channel, int sender, std::int64_t clock);
  /// Adds a message on the channel Trigger::chosen, with these senders.
  void choose(std::vector<int> senders) { chosen_.push_back(std::move(senders)); }

  /// In a plan with tickets, when no message is in flight: starts the training of `batches` more global batches. clock:
  /// of the next message of each worker.
  void open(std::int64_t batches, std::int64_t clock);
  /// The number of the sender's next ticket; -1: no ticket is left. Throws Error in a program without tickets.
  std::int64_t take_ticket(int sender);

  struct Start {
    int phase;                          ///< of the program
    std::vector<std::size_t> messages;  ///< taken by it, in the order of their senders
  };
  /// Takes the messages of the first phase of the program that can run now. None: no phase can run before another
  /// message arrives.
  std::optional<Start> next();
  /// Messages that no phase has taken.
  std::size_t waiting() const;
  /// The clock of the last message taken from each sender (-1: none yet), channels in order of their names. Clocks and
  /// waiting messages are the whole state of an inbox.
  std::vector<std::int64_t> clocks() const;
  void set_clocks(const std::vector<std::int64_t>&);  ///< throws Error for a wrong number of clocks

 private:
  struct Message {
    std::size_t number;
    std::int64_t clock;
  };
  struct Channel {
    std::map<int, std::deque<Message>> messages;  // by sender, as they came
    /// First message of each sender, by clock: number and sender.
    std::map<std::int64_t, std::set<std::pair<std::size_t, int>>> first;
    std::map<int, std::int64_t> taken;     // last clock by sender; -1: none yet
    std::map<std::int64_t, int> by_clock;  // number of senders by clock
    bool has_late = false;                 // whether a phase takes late messages
    void wait_for_turn(int sender);
    std::size_t take(int sender);
    void set_clock(int sender, std::int64_t clock);
  };
  void settle(const Trigger&, const std::vector<std::pair<std::size_t, int>>& come, bool updates);
  /// Messages of later clocks must wait.
  std::int64_t last_clock(const Trigger&) const;
  /// The messages in Channel::first that a phase may take.
  auto eligible(const Channel&, const Trigger&) const;
  /// The messages that the phase takes, (number, sender) in the order of senders; empty: it does not start.
  std::vector<std::pair<std::size_t, int>> ready(const Channel&, const Trigger&) const;

  const Plan& plan_;
  const Program& program_;
  std::map<std::string, Channel> channels_;
  std::optional<TicketQueue> tickets_;   // only in a program that distributes tickets
  std::deque<std::vector<int>> chosen_;  // from messages, in their order
};

}  // namespace trireme
