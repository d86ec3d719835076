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

#include "parallel/async/tickets.h"
#include "parallel/plan/channels.h"

namespace trireme {

/// The messages that have come to one rank of a program that messages start, and the phases that they start. Of a
/// program that hands out tickets also the queue of these: a gradient that an update takes is that of its sender's
/// ticket; where others come late, their tickets are in the queue again as soon as their clock is over.
class Inbox {
 public:
  /// program of plan; root: the rank's coordinate along the axis of its messages. Both must outlive it.
  Inbox(const Plan& plan, const Program& program, int root);
  /// A message has come: number, which grows from one to the next, names it in next(), sender is a coordinate, clock
  /// the sender's step, which does not go back. Throws Error for a channel or a sender that the plan does not know.
  void add(std::size_t number, const std::string& channel, int sender, std::int64_t clock);
  /// A message on the channel Trigger::chosen has come, with these senders.
  void choose(std::vector<int> senders) { chosen_.push_back(std::move(senders)); }

  /// In a plan with tickets, where no message is on its way: those of so many global batches are to be trained from now
  /// on. clock: of what workers send next.
  void open(std::int64_t batches, std::int64_t clock);
  /// The number of the sender's next ticket; -1: none is left for it. Throws Error in a program that hands out none.
  std::int64_t take_ticket(int sender);

  struct Start {
    int phase;                          ///< of the program
    std::vector<std::size_t> messages;  ///< taken by it, in the order of their senders
  };
  /// The phase that may run now, the first of several in the program's order; its messages are taken. None: it waits
  /// for others to come.
  std::optional<Start> next();
  /// Messages that no phase has taken.
  std::size_t waiting() const;
  /// The clock of the last message taken of each sender (-1: none yet), the channels by name: with the messages that
  /// wait, all that an inbox is.
  std::vector<std::int64_t> clocks() const;
  void set_clocks(const std::vector<std::int64_t>&);  ///< throws Error for another number of them

 private:
  struct Message {
    std::size_t number;
    std::int64_t clock;
  };
  struct Channel {
    std::map<int, std::deque<Message>> messages;  // by sender, as they came
    /// The first of each sender's, by clock: number and sender.
    std::map<std::int64_t, std::set<std::pair<std::size_t, int>>> first;
    std::map<int, std::int64_t> taken;     // the last clock, by sender; -1: none yet
    std::map<std::int64_t, int> by_clock;  // how many senders have it
    bool has_late = false;                 // a phase takes what is late
    void wait_for_turn(int sender);
    std::size_t take(int sender);
    void set_clock(int sender, std::int64_t clock);
  };
  void settle(const Trigger&, const std::vector<std::pair<std::size_t, int>>& come, bool updates);
  /// Messages of later clocks must wait.
  std::int64_t last_clock(const Guard&) const;
  /// Those of Channel::first that a phase may take.
  auto eligible(const Channel&, const Trigger&) const;
  /// Those that it takes, number and sender, in the order of senders; none: it does not start.
  std::vector<std::pair<std::size_t, int>> ready(const Channel&, const Trigger&) const;

  const Plan& plan_;
  const Program& program_;
  std::map<std::string, Channel> channels_;
  std::optional<TicketQueue> tickets_;   // of a program that hands them out
  std::deque<std::vector<int>> chosen_;  // by messages, in their order
};

}  // namespace trireme
