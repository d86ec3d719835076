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

/// An asymmetric exchange of pairs: an even rank waits for the answer to its message of the previous step (in the first
/// step as if there had been one); an odd rank waits for no rank and answers a message at once.
void Simulator::exchange(int rank, ActionId id) {
  const SimAction& a = actions(rank)[id];
  const Nanoseconds took = linked(rank, a);
  if (plan_.grid.coordinate(ranks_.world[rank], a.along) % 2 == 0) {
    const auto answer = answers_.try_emplace(rank, 2 * took).first;
    clock_[rank] = std::max(clock_[rank], answer->second);
    answer->second = std::max(clock_[rank], links_[rank].free) + 2 * took;
  }
  links_[rank].free = std::max(clock_[rank], links_[rank].free) + took;
  at(rank, id) = {clock_[rank], clock_[rank], clock_[rank]};
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
