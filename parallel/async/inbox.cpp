#include "parallel/async/inbox.h"

#include <algorithm>
#include <iterator>
#include <ranges>

#include "parallel/plan/action_kind.h"

namespace trireme {

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
        "program {}: rank {} has sent to channel '{}', which it does not send to", program_.name, sender, channel);
  auto& queue = at->second.messages[sender];
  queue.push_back({number, clock});
  if (queue.size() == 1) at->second.wait_for_turn(sender);
}

void Inbox::open(std::int64_t batches, std::int64_t clock) {
  check(waiting() == 0, ErrorKind::internal, "tickets",
        "program {}: {} messages have arrived before the batches were opened", program_.name, waiting());
  std::set<int> all;
  for (auto& [name, channel] : channels_)
    for (const auto& [sender, last] : std::map(channel.taken)) {
      channel.set_clock(sender, clock - 1);
      all.insert(sender);
    }
  const std::vector<int> workers(all.begin(), all.end());
  if (tickets_) tickets_->open(batches * plan_.tickets, workers, plan_.tickets_ahead);
}

std::int64_t Inbox::take_ticket(int sender) {
  check(tickets_.has_value(), "inbox", "program {} hands out no tickets", program_.name);
  return tickets_->take(sender);
}

std::int64_t Inbox::last_clock(const Trigger& t) const {
  if (t.guard.empty()) return Trigger::forever;
  const auto at = channels_.find(t.guard);
  if (at == channels_.end() || at->second.taken.empty()) return -1;
  const auto last = std::ranges::find(program_.phases, true, &ProgramPhase::last);
  if (plan_.tickets == 0 || last == program_.phases.end()) return at->second.by_clock.begin()->first + t.staleness;
  const Channel& closing = channels_.at(last->trigger.channel);  // senders without a ticket are not waited for
  std::int64_t least = Trigger::forever;
  for (const auto& [sender, clock] : at->second.taken)
    if (const auto come = closing.messages.find(sender); come == closing.messages.end() || come->second.empty())
      least = std::min(least, clock + t.staleness);
  return least;
}

/// Updates the tickets after a phase has taken these messages: which are done, and which return to the queue.
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
  auto begin = channel.first.begin(), end = channel.first.upper_bound(last_clock(t));
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
