#include "parallel/plan/channels.h"

#include <algorithm>
#include <iterator>
#include <ranges>
#include <set>

#include "parallel/plan/action_kind.h"

namespace trireme {
namespace {

template <class F>
void each_push(const Plan& plan, F f) {
  for (const Program& program : plan.programs)
    for (const Action& a : program.actions)
      if (a.kind == ActionKind::push) f(program, a);
}

constexpr int most_answers = 4;  // that follow from each other

/// answers: how many of a chain of answers to answers count.
std::vector<int> senders_to(const Plan& plan, const std::string& channel, int root, int answers) {
  std::set<int> senders;
  each_push(plan, [&](const Program& program, const Action& a) {
    if (a.peer.channel != channel || (a.peer.root < 0 && answers == 0)) return;
    const CoordinateRange along = plan.range(program, a.peer.axis);
    const std::string& to = a.peer.senders_of.empty() ? program.trigger(a).channel : a.peer.senders_of;
    for (int i = along.begin; i < along.end; ++i) {
      const bool sends = a.peer.root >= 0 ? root_of(a.peer, i) == root
                                          : std::ranges::binary_search(senders_to(plan, to, i, answers - 1), root);
      if (sends) senders.insert(i);
    }
  });
  return {senders.begin(), senders.end()};
}

}  // namespace

std::vector<std::string> channels_of(const Plan& plan) {
  std::set<std::string> names;
  each_push(plan, [&](const Program&, const Action& a) { names.insert(a.peer.channel); });
  return {names.begin(), names.end()};
}

std::vector<int> senders_to(const Plan& plan, const std::string& channel, int root) {
  return senders_to(plan, channel, root, most_answers);
}

std::string axis_of(const Plan& plan, const std::string& channel) {
  std::string axis;
  each_push(plan, [&](const Program&, const Action& a) {
    if (a.peer.channel == channel) axis = a.peer.axis;
  });
  return axis;
}

int messages_in_step(const Program& program, const Trigger& trigger, int senders) {
  const auto is_other = [&](const ProgramPhase& p) {
    return p.trigger.channel == trigger.channel && p.trigger.late != trigger.late;
  };
  const auto other = std::ranges::find_if(program.phases, is_other);
  if (other == program.phases.end()) return senders;
  return trigger.late ? senders - other->trigger.count : trigger.count;
}

int updates_in_step(const Plan& plan, const Program& program) {
  const auto update = std::ranges::find(program.actions, ActionKind::update, &Action::kind);
  if (update == program.actions.end()) return 1;
  const Trigger& t = program.trigger(*update);
  if (t.channel.empty() || t.count == 0) return 1;
  const int root = plan.range(program, axis_of(plan, t.channel)).begin;
  const auto senders = static_cast<int>(senders_to(plan, t.channel, root).size());
  return std::max(1, messages_in_step(program, t, senders) / t.count);
}

bool serves_at(const Plan& plan, const std::string& axis, int coordinate) {
  return std::ranges::any_of(plan.programs, [&](const Program& p) {
    const CoordinateRange along = plan.range(p, axis);
    return p.serves() && along.begin <= coordinate && coordinate < along.end;
  });
}

bool depends_on_arrivals(const Plan& plan) {
  return std::ranges::any_of(plan.consistency, [&](const auto& promised) {
    const auto& [axis, how] = promised;
    if (plan.size(axis) == 1 || (axis == plan.stage_axis && plan.has_stages())) return false;
    return how.kind == Consistency::Kind::stale ||
           (how.kind == Consistency::Kind::gossip && how.bound == Consistency::unbounded);
  });
}

bool meets_by_messages(const Plan& plan) {
  return std::ranges::any_of(plan.programs, &Program::serves) || depends_on_arrivals(plan);
}

bool hands_out_tickets(const Program& program) {
  return program.serves() && std::ranges::any_of(program.actions, [](const Action& a) {
           return a.kind == ActionKind::push && a.payload == Payload::ticket && a.peer.root < 0;
         });
}

Inbox::Inbox(const Plan& plan, const Program& program, int root) : plan_(plan), program_(program) {
  if (hands_out_tickets(program)) tickets_.emplace();
  for (const ProgramPhase& phase : program.phases) {
    if (phase.trigger.channel.empty()) continue;
    Channel& channel = channels_[phase.trigger.channel];
    channel.has_late = channel.has_late || phase.trigger.late;
    for (int sender : senders_to(plan, phase.trigger.channel, root)) channel.taken[sender] = -1;
    channel.by_clock[-1] = static_cast<int>(channel.taken.size());
  }
}

void Inbox::add(std::size_t number, const std::string& channel, int sender, std::int64_t clock) {
  const auto at = channels_.find(channel);
  check(at != channels_.end() && at->second.taken.contains(sender), ErrorKind::communicator, "inbox",
        "program {}: rank {} has sent to channel '{}', which it does not push to", program_.name, sender, channel);
  auto& queue = at->second.messages[sender];
  queue.push_back({number, clock});
  if (queue.size() == 1) at->second.wait_for_turn(sender);
}

void Inbox::open(std::int64_t batches, std::int64_t clock) {
  check(waiting() == 0, ErrorKind::internal, "tickets",
        "program {}: {} messages have come before the batches were opened", program_.name, waiting());
  std::set<int> all;
  for (auto& [name, channel] : channels_)
    for (const auto& [sender, last] : std::map(channel.taken)) {
      channel.set_clock(sender, clock - 1);
      all.insert(sender);
    }
  const std::vector<int> workers(all.begin(), all.end());
  if (tickets_) tickets_->open(batches * plan_.tickets.shares, workers, plan_.tickets.ahead);
}

std::int64_t Inbox::take_ticket(int sender) {
  check(tickets_.has_value(), "inbox", "program {} hands out no tickets", program_.name);
  return tickets_->take(sender);
}

std::int64_t Inbox::last_clock(const Guard& guard) const {
  if (guard.channel.empty()) return Trigger::forever;
  const auto at = channels_.find(guard.channel);
  if (at == channels_.end() || at->second.taken.empty()) return -1;
  const auto last = std::ranges::find(program_.phases, true, &ProgramPhase::last);
  if (plan_.tickets.shares == 0 || last == program_.phases.end())
    return at->second.by_clock.begin()->first + guard.staleness;
  const Channel& closing = channels_.at(last->trigger.channel);  // nobody waits for who has no ticket left
  std::int64_t least = Trigger::forever;
  for (const auto& [sender, clock] : at->second.taken)
    if (const auto come = closing.messages.find(sender); come == closing.messages.end() || come->second.empty())
      least = std::min(least, clock + guard.staleness);
  return least;
}

/// Whose tickets are done, and whose are in the queue again, once a phase has taken these messages.
void Inbox::settle(const Trigger& t, const std::vector<std::pair<std::size_t, int>>& come, bool updates) {
  for (const auto& [number, sender] : come) {
    if (updates) tickets_->finish(sender);
    if (t.late) tickets_->give_back(sender);
  }
  if (updates && channels_.at(t.channel).has_late) tickets_->give_back_all();
}

void Inbox::Channel::wait_for_turn(int sender) {
  const Message& m = messages.at(sender).front();
  first[m.clock].insert({m.number, sender});
}

std::size_t Inbox::Channel::take(int sender) {
  auto& queue = messages.at(sender);
  const Message m = queue.front();
  queue.pop_front();
  auto& group = first.at(m.clock);
  group.erase({m.number, sender});
  if (group.empty()) first.erase(m.clock);
  if (!queue.empty()) wait_for_turn(sender);
  set_clock(sender, m.clock);
  return m.number;
}

void Inbox::Channel::set_clock(int sender, std::int64_t clock) {
  std::int64_t& last = taken.at(sender);
  if (--by_clock[last] == 0) by_clock.erase(last);
  ++by_clock[last = clock];
}

auto Inbox::eligible(const Channel& channel, const Trigger& t) const {
  auto begin = channel.first.begin(), end = channel.first.upper_bound(last_clock(t.guard));
  if (channel.has_late) {  // a clock is over once one of its messages has been taken
    const auto open = channel.first.upper_bound(channel.by_clock.rbegin()->first);
    if (t.late)
      end = open;
    else {
      begin = open;
      end = open == channel.first.end() ? open : std::next(open);
    }
  }
  return std::ranges::subrange(begin, end);
}

std::vector<std::pair<std::size_t, int>> Inbox::ready(const Channel& channel, const Trigger& t) const {
  std::vector<std::pair<std::size_t, int>> come;
  const auto groups = eligible(channel, t);
  if (!t.chosen.empty()) {
    if (chosen_.empty()) return {};
    const auto& senders = chosen_.front();
    for (const auto& [clock, group] : groups)
      std::ranges::copy_if(group, std::back_inserter(come),
                           [&](const auto& m) { return std::ranges::find(senders, m.second) != senders.end(); });
    if (come.size() < senders.size()) return {};
  } else {
    const std::size_t count = t.count > 0 ? static_cast<std::size_t>(t.count) : channel.taken.size();
    std::size_t all = 0;
    for (const auto& [clock, group] : groups) all += group.size();
    if (all < count) return {};
    for (const auto& [clock, group] : groups)
      std::ranges::copy(group | std::views::take(count), std::back_inserter(come));
    std::ranges::sort(come);
    come.resize(count);
  }
  std::ranges::sort(come, {}, &std::pair<std::size_t, int>::second);
  return come;
}

std::optional<Inbox::Start> Inbox::next() {
  for (std::size_t p = 0; p < program_.phases.size(); ++p) {
    const Trigger& t = program_.phases[p].trigger;
    if (t.channel.empty()) continue;
    Channel& channel = channels_.at(t.channel);
    const auto come = ready(channel, t);
    if (come.empty()) continue;
    if (!t.chosen.empty()) chosen_.pop_front();
    const bool updates = std::ranges::any_of(program_.actions, [&](const Action& a) {
      return a.kind == ActionKind::update && a.phase == static_cast<int>(p);
    });
    if (tickets_) settle(t, come, updates);
    Start start{static_cast<int>(p), {}};
    for (const auto& [number, sender] : come) start.messages.push_back(channel.take(sender));
    return start;
  }
  return std::nullopt;
}

std::size_t Inbox::waiting() const {
  std::size_t all = 0;
  for (const auto& [name, channel] : channels_)
    for (const auto& [sender, queue] : channel.messages) all += queue.size();
  return all;
}

std::vector<std::int64_t> Inbox::clocks() const {
  std::vector<std::int64_t> all;
  for (const auto& [name, channel] : channels_)
    for (const auto& [sender, clock] : channel.taken) all.push_back(clock);
  return all;
}

void Inbox::set_clocks(const std::vector<std::int64_t>& clocks) {
  check(clocks.size() == this->clocks().size(), ErrorKind::internal, "inbox", "{} clocks of {} senders", clocks.size(),
        this->clocks().size());
  auto next = clocks.begin();
  for (auto& [name, channel] : channels_)
    for (const auto& [sender, clock] : std::map(channel.taken)) channel.set_clock(sender, *next++);
}

}  // namespace trireme
