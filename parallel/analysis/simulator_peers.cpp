// Actions in which each rank exchanges messages with partners given by a rule (plan/peers.h): gossip, push-sum.
#include <algorithm>

#include "parallel/analysis/simulator.h"

namespace trireme {

/// The partners of a rank in its step.
std::vector<RankPair> Simulator::pairs_of(int rank, const SimAction& a) const {
  const int own = plan_.grid.coordinate(ranks_.world[rank], a.along);
  return peers_at(*a.peer, own, plan_.grid.axes()[a.along].size, plan_.options.step + step_[rank]);
}

/// Time for which the action occupies the rank's link.
Nanoseconds Simulator::linked(int rank, const SimAction& a) const {
  if (!a.trades && !a.ahead) return took(rank, a);
  const int world = ranks_.world[rank], own = plan_.grid.coordinate(world, a.along);
  Nanoseconds all = 0;
  for (const RankPair& pair : pairs_of(rank, a))
    if (pair.to != own)
      all += ranks_.folded ? took(rank, a) : a.took[places_.apart(world, plan_.rank_at(world, a, pair.to))];
  return all;
}

/// An asymmetric exchange of pairs. An even rank waits for the answer to its message of the previous step, then sends
/// the next one. An odd rank answers at its places (SimAction::answers), and at once after its last step.
void Simulator::exchange(int rank, ActionId id) {
  const SimAction& a = actions(rank)[id];
  const int world = ranks_.world[rank], own = plan_.grid.coordinate(world, a.along);
  const Nanoseconds begin = at(rank, id).begin;
  Asked& mine = asked_[rank];
  if (own % 2 == 1) {
    if (a.answers) answer_all(rank, begin);
    return finish(rank, id, begin);
  }
  if (a.answers) return finish(rank, id, begin);
  if (mine.open) {
    mine.waits = id;
    return;
  }
  const Nanoseconds now = std::max(begin, mine.answer), took = linked(rank, a);
  links_[rank].free = std::max(now, links_[rank].free) + took;
  const int passive = plan_.rank_at(world, a, pairs_of(rank, a).at(0).to);
  mine.open = true;
  Asked& theirs = asked_[passive];
  theirs.come[rank] = links_[rank].free;
  theirs.how = &a;
  finish(rank, id, now, begin);
  if (theirs.flushed) answer_all(passive, std::max(clock_[passive], links_[rank].free));
}

void Simulator::answer_all(int rank, Nanoseconds now) {
  Asked& mine = asked_[rank];
  for (;;) {
    const auto has_come = [now](const auto& message) { return message.second <= now; };
    auto next = std::find_if(mine.come.lower_bound(mine.turn), mine.come.end(), has_come);
    if (next == mine.come.end()) next = std::find_if(mine.come.begin(), mine.come.end(), has_come);
    if (next == mine.come.end() && mine.flushed && !mine.come.empty())
      next = std::ranges::min_element(mine.come, {}, [](const auto& m) { return m.second; });
    if (next == mine.come.end()) return;
    const auto [active, arrival] = *next;
    mine.come.erase(next);
    mine.turn = active + 1;
    links_[rank].free = std::max({now, arrival, links_[rank].free}) + mine.how->took[places_.apart(rank, active)];
    Asked& theirs = asked_[active];
    theirs.open = false;
    theirs.answer = links_[rank].free;
    if (theirs.waits >= 0)
      later_.push({std::max(clock_[active], theirs.answer), active, std::exchange(theirs.waits, -1)});
  }
}

/// Sends its messages one after another. If folded, messages of other ranks arrive when its own do.
void Simulator::trade(int rank, ActionId id, Nanoseconds ready) {
  const SimAction& a = actions(rank)[id];
  const int world = ranks_.world[rank], own = plan_.grid.coordinate(world, a.along);
  const Nanoseconds begin = this->at(rank, id).begin;
  Trade mine{ready, begin, {}};
  std::vector<int> told{rank};
  if (ranks_.folded) mine.end += linked(rank, a);
  for (const RankPair& pair : ranks_.folded ? std::vector<RankPair>() : pairs_of(rank, a)) {
    const int to = plan_.rank_at(world, a, pair.to);
    if (pair.from != own) mine.from.push_back(plan_.rank_at(world, a, pair.from));
    if (pair.to == own) continue;
    mine.end += a.took[places_.apart(world, to)];
    boxes_[{to, -2 - id, rank}].come.push_back({mine.end, begin});
    told.push_back(to);
  }
  links_[rank].free = mine.end;
  trades_.insert({{rank, id}, std::move(mine)});
  for (const int other : told) end_trade(other, id);
}

/// Ends the trade once a message of each partner has arrived.
void Simulator::end_trade(int rank, ActionId id) {
  const auto at = trades_.find({rank, id});
  if (at == trades_.end()) return;
  auto& [end, begun, from] = at->second;
  const auto come = [&](int other) -> auto& { return boxes_[{rank, -2 - id, other}].come; };
  for (const int other : from)
    if (std::ssize(come(other)) < std::ranges::count(from, other)) return;
  for (const int other : from) {
    const Arrival& message = come(other).front();
    end = std::max(end, message.when);
    begun = std::max(begun, message.from);
    come(other).pop_front();
  }
  const Arrival last{end, begun};
  trades_.erase(at);
  finish(rank, id, last.when, last.from);
}

}  // namespace trireme
