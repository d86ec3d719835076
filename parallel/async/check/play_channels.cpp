// The part of check(plan) that simulates programs that messages start, for some steps on one line of ranks, with
// actions that take no time. It finds messages that never come and messages that no rank takes.
#include <deque>
#include <map>
#include <optional>

#include "parallel/async/inbox.h"
#include "parallel/plan/check/diagnostics.h"

namespace trireme {
namespace {

constexpr std::int64_t most_steps = 100;  // number of steps to simulate

/// Simulates the steps of the programs along one line of the axis of their messages.
class ChannelCheck {
 public:
  ChannelCheck(const Plan& plan, const std::string& axis, Diagnostics& faults)
      : plan_(plan), axis_(axis), faults_(faults) {
    for (std::size_t p = 0; p < plan.programs.size(); ++p) {
      const CoordinateRange along = plan.range(plan.programs[p], axis);
      for (int i = along.begin; i < along.end; ++i) ranks_.try_emplace(i, Rank{&plan.programs[p]});
      for (const ProgramPhase& phase : plan.programs[p].phases)
        steps_ = std::max(steps_, std::min(most_steps, phase.trigger.from + 2 * phase.trigger.every));
    }
    for (auto& [at, rank] : ranks_)
      if (rank.program->serves()) rank.inbox.emplace(plan, *rank.program, at);
    if (shares()) open();
  }

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (auto& [at, rank] : ranks_) moved = (!rank.inbox && advance(at, rank)) || moved;
    }
    for (const auto& [at, rank] : ranks_) {
      if (!rank.inbox && rank.step < steps_)
        faults_.add("deadlock: {} waits in step {} for a message that never comes", place(*rank.program, rank.next),
                    rank.step);
      if (rank.inbox && rank.step < steps_)
        faults_.add("program {}: a step of it never ends: phase '{}' has run {} times in {} steps, {} messages wait",
                    rank.program->name, last(*rank.program), rank.step, steps_, rank.inbox->waiting());
      for (const auto& [from, come] : rank.come)
        if (!come.empty())
          faults_.add("program {}: {} messages on '{}' from rank {} are never received in {} steps", rank.program->name,
                      come.size(), from.first, from.second, steps_);
      if (rank.inbox && rank.step == steps_ && rank.inbox->waiting() > 0)
        faults_.add("program {}: {} messages arrive after the last phase of {} steps, and no phase takes them",
                    rank.program->name, rank.inbox->waiting(), steps_);
    }
  }

 private:
  struct Rank {
    const Program* program;
    std::optional<Inbox> inbox = {};
    std::int64_t step = 0;  // of a server: runs of its last phase
    ActionId next = 0;
    std::int64_t updates = 0, resumes = 0;  // resumes: the step with which the rank continues
    std::int64_t told = Trigger::forever;   // the least clock received in this step
    /// Clocks or tickets in messages to receive, by channel and sender; 0 for other messages.
    std::map<std::pair<std::string, int>, std::deque<std::int64_t>> come = {};
    std::deque<std::int64_t> tickets = {};  // empty: it sends its final step
    std::int64_t clock = 0;                 // of its messages, in a plan with tickets
  };
  struct Sent {
    int sender;
    std::string channel;
    std::int64_t clock;
  };
  bool shares() const { return plan_.tickets > 0; }
  /// Gives each rank tickets for as many batches as there are simulated steps.
  void open() {
    for (auto& [at, rank] : ranks_) {
      const CoordinateRange along = plan_.range(*rank.program, axis_);
      if (rank.inbox)
        rank.inbox->open(steps_, 0);
      else
        rank.tickets =
            TicketQueue::first(steps_ * plan_.tickets, at - along.begin, along.end - along.begin, plan_.tickets_ahead);
    }
  }
  static std::string last(const Program& program) {
    const auto at = std::ranges::find(program.phases, true, &ProgramPhase::last);
    return at == program.phases.end() ? "" : at->name;
  }

  void send(int from, int to, const Action& a) {
    Rank &rank = ranks_.at(from), &other = ranks_.at(to);
    if (!other.inbox)
      return other.come[{a.peer.channel, from}].push_back(a.payload == OperandKind::clock ? rank.updates
                                                          : a.payload == OperandKind::ticket
                                                              ? rank.inbox->take_ticket(to)
                                                              : 0);
    const std::int64_t clock = shares() && !rank.inbox ? rank.clock : rank.step;
    other.inbox->add(sent_.size(), a.peer.channel, from, clock);
    sent_.push_back({from, a.peer.channel, clock});
    serve(to, other);  // at once, as if other ranks took their time
  }

  bool advance(int at, Rank& rank) {
    const auto& list = rank.program->actions;
    bool moved = false;
    for (; rank.step < steps_; rank.next = 0, moved = true) {
      for (; rank.next < std::ssize(list); ++rank.next) {
        const Action& a = list[static_cast<std::size_t>(rank.next)];
        if (!is_channel(a) || a.peer.axis != axis_ || !rank.program->trigger(a).runs_at(rank.step)) continue;
        if (shares() ? !runs_with_ticket(a, rank.tickets.empty()) : rank.step < rank.resumes && !reports_loss(a))
          continue;
        if (a.kind == ActionKind::send) {
          send(at, root_of(a.peer, at), a);
        } else {
          auto& come = rank.come[{a.peer.channel, root_of(a.peer, at)}];
          if (come.empty()) return moved;
          if (a.payload == OperandKind::clock) rank.told = std::min(rank.told, come.front());
          if (a.payload == OperandKind::ticket && come.front() >= 0) rank.tickets.push_back(come.front());
          come.pop_front();
        }
        moved = true;
      }
      end_step(rank);
    }
    return moved;
  }

  void end_step(Rank& rank) const {
    ++rank.clock;
    if (rank.told != Trigger::forever) rank.clock = rank.resumes = std::exchange(rank.told, Trigger::forever);
    ++rank.step;
    if (!shares()) return;
    rank.step = steps_;  // it has sent its final step
    if (rank.tickets.empty()) return;
    rank.tickets.pop_front();
    rank.step = rank.tickets.empty() ? steps_ - 1 : ticket_of(plan_, rank.tickets.front()).batch;
  }

  void serve(int at, Rank& rank) {
    while (rank.step < steps_) {  // after its last step it takes no more messages: later ones are too late
      const auto start = rank.inbox->next();
      if (!start) return;
      std::vector<int> started;
      for (std::size_t m : start->messages) started.push_back(sent_[m].sender);
      for (const Action& a : rank.program->actions) {
        if (a.phase != start->phase) continue;
        rank.updates += a.kind == ActionKind::update;
        if (!sends_to_channel(a)) continue;
        for (const int to : receivers_of(plan_, a.peer, at, started)) {
          if (a.payload != OperandKind::senders) {
            send(at, to, a);
            continue;
          }
          ranks_.at(to).inbox->choose(started);
          serve(to, ranks_.at(to));
        }
      }
      if (rank.program->phases[static_cast<std::size_t>(start->phase)].last) rank.step += shares() ? steps_ : 1;
    }
  }

  const Plan& plan_;
  const std::string axis_;
  Diagnostics& faults_;
  std::int64_t steps_ = 2;
  std::map<int, Rank> ranks_;  // by coordinate
  std::vector<Sent> sent_;     // to servers
};

}  // namespace

void play_channels(const Plan& plan, const std::string& axis, Diagnostics& faults) {
  ChannelCheck(plan, axis, faults).run();
}

}  // namespace trireme
