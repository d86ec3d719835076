#include <algorithm>

#include "parallel/analysis/simulator.h"

namespace trireme {

void SimServer::post(const Message& m) {
  auto& queue = mail_[m.sender];
  queue.push_back(m);
  if (queue.size() == 1) on_its_way_.insert({m.arrival, m.sender});
}

std::optional<Nanoseconds> SimServer::next_arrival() const {
  if (!here_.empty()) return 0;
  return on_its_way_.empty() ? std::optional<Nanoseconds>() : on_its_way_.begin()->first;
}

bool SimServer::take(Nanoseconds now) {
  for (; !on_its_way_.empty() && on_its_way_.begin()->first <= now; on_its_way_.erase(on_its_way_.begin()))
    here_.insert(on_its_way_.begin()->second);
  if (here_.empty()) return false;
  auto next = here_.lower_bound(turn_);
  if (next == here_.end()) next = here_.begin();
  auto& queue = mail_[*next];
  const Message m = queue.front();
  queue.pop_front();
  here_.erase(next);
  if (!queue.empty()) on_its_way_.insert({queue.front().arrival, m.sender});
  turn_ = m.sender + 1;
  inbox_.add(from_.size(), channels_[m.channel], m.sender, m.clock);
  from_.push_back(m.sender);
  return true;
}

int SimServer::next_phase() {
  const auto start = inbox_.next();
  if (!start) return -1;
  start_ = *start;
  senders_.clear();
  for (std::size_t message : start_.messages) senders_.push_back(from_[message]);
  return start_.phase;
}

/// An idle server takes the next message and runs the phases that it starts.
void Simulator::look(int rank, Nanoseconds now) {
  SimServer& server = *servers_[rank];
  if (clock_[rank] > now || step_[rank] == steps_ || !server.take(now)) return;
  clock_[rank] = now;
  go_on(rank);
}

int Simulator::next_phase(int rank) {
  SimServer& server = *servers_[rank];
  const int phase = server.next_phase();
  const auto next = phase < 0 ? server.next_arrival() : std::nullopt;
  if (next) later_.push({std::max(clock_[rank], *next), rank, -1});
  return phase;
}

/// Sends a server's message; no rank waits for it.
void Simulator::answer(int rank, ActionId id, int to) {
  const SimAction& a = actions(rank)[id];
  const Nanoseconds now = clock_[rank], took = a.took[places_.apart(rank, to)];
  const Nanoseconds end = links_[rank].free = std::max(now, links_[rank].free) + took;
  record_.count(rank, a, 0, took);
  record_.span(rank, id, now, end, took);
  if (a.is_clock) told_[to] = std::min(told_[to], servers_[rank]->updates());
  deliver(rank, to, a, {end, 0});  // the worker's whole wait is for its exchange with the server
}

/// Carries out an action of a server.
void Simulator::handle(int rank, ActionId id) {
  const SimAction& a = actions(rank)[id];
  if (a.is == SimAction::Is::push) {
    for (const int to : receivers_of(plan_.plan, *a.peer, grid_.coordinate(rank, a.along), servers_[rank]->senders()))
      answer(rank, id, plan_.rank_at(rank, a, to));
    return;
  }
  const Nanoseconds now = clock_[rank];
  clock_[rank] += cost(rank, id);
  record_.count(rank, a, clock_[rank] - now, 0);
  record_.span(rank, id, now, clock_[rank], -1);
  if (id == plan_.programs[ranks_.program[rank]].last_update) servers_[rank]->updated();
}

}  // namespace trireme
