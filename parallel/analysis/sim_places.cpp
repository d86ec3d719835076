#include "parallel/analysis/sim_places.h"

#include <algorithm>

namespace trireme {

Places::Places(const SimPrograms& plan) : plan_(plan) {
  const Cluster& cluster = plan.cluster;
  const int ranks = plan.grid.size();
  check(ranks <= cluster.devices(), "simulate", "{} ranks on a cluster of {} devices", ranks, cluster.devices());
  for (int r = 0; r < ranks; ++r) {
    node_.push_back(cluster.node_of(r));
    same_speed_ = same_speed_ && cluster.speed_of(r) == cluster.speed_of(0);
  }
  for (int axis = 0; axis < std::ssize(plan.axes); ++axis) {
    const RankLines& lines = lines_.emplace_back(plan.lines(plan.grid, axis));
    auto& between = between_.emplace_back(lines.lines());
    auto& mixed = mixed_.emplace_back(lines.lines());
    for (int r = 0; r < ranks; ++r) {
      const int line = lines.line_of[r];
      between[line] = between[line] || apart(r, lines.members[lines.first[line]]);
    }
    for (int line = 0; line < lines.lines(); ++line) {
      std::vector<int> nodes;
      for (int m = lines.first[line]; m < lines.first[line + 1]; ++m) nodes.push_back(node_[lines.members[m]]);
      std::ranges::sort(nodes);
      mixed[line] = between[line] && std::ranges::adjacent_find(nodes) != nodes.end();
    }
  }
}

bool Places::between(int rank, const SimAction& a) const {
  if (a.is == SimAction::Is::collective || a.ahead || a.trades)
    return between(rank, a.axis);  // ahead: to any rank of the line
  if (!slowest_.empty()) return slowest_[plan_.program_of[rank]].messages.at({a.along, a.offset});
  const int other =
      a.is == SimAction::Is::push ? plan_.root_at(rank, a) : plan_.grid.neighbour(rank, a.along, a.offset);
  return other >= 0 && apart(rank, other);
}

void Places::use_slowest() {
  std::vector<Ways> all(plan_.programs.size());
  for (std::size_t r = 0; r < all.size(); ++r) {
    all[r].axes.resize(plan_.axes.size());
    for (const SimAction& a : plan_.programs[r].actions)
      if (a.axis >= 0 && a.is == SimAction::Is::send && !a.ahead && !a.trades) all[r].messages[{a.along, a.offset}] = 0;
  }
  for (int rank = 0; rank < plan_.grid.size(); ++rank) {
    Ways& ways = all[plan_.program_of[rank]];
    for (int axis = 0; axis < std::ssize(ways.axes); ++axis) ways.axes[axis] |= between(rank, axis) ? 1 : 0;
    for (auto& [way, apart_there] : ways.messages) {
      const int other = plan_.grid.neighbour(rank, way.first, way.second);
      apart_there |= other >= 0 && apart(rank, other) ? 1 : 0;
    }
  }
  slowest_ = std::move(all);
}

std::pair<int, ActionId> Places::differing() const {
  struct Way {
    ActionId id;
    int axis;  // of a collective, or of layers' messages; -1: a message
    signed char seen = -1;
  };
  std::vector<std::vector<Way>> ways(plan_.programs.size());
  for (std::size_t r = 0; r < ways.size(); ++r) {
    const auto& actions = plan_.programs[r].actions;
    // Calls along one axis are alike, and so are messages over one offset: one of each is enough.
    const auto add = [&](Way way) {
      const SimAction& a = actions[way.id];
      const auto alike = [&](const Way& w) {
        const SimAction& b = actions[w.id];
        return way.axis == w.axis && a.trades == b.trades &&
               (way.axis >= 0 || (a.along == b.along && a.offset == b.offset));
      };
      if (std::ranges::none_of(ways[r], alike)) ways[r].push_back(way);
    };
    for (ActionId id = 0; id < std::ssize(actions); ++id) {
      if (actions[id].axis >= 0)
        add({id, actions[id].is == SimAction::Is::collective || actions[id].trades ? actions[id].axis : -1});
      for (const SimComm& c : actions[id].comms) add({id, c.axis});
    }
  }
  for (int rank = 0; rank < plan_.grid.size(); ++rank) {
    const int r = plan_.program_of[rank];
    for (Way& way : ways[r]) {
      const bool here = way.axis >= 0 ? between(rank, way.axis) : between(rank, plan_.programs[r].actions[way.id]);
      const SimAction& a = plan_.programs[r].actions[way.id];
      const bool mixes = a.trades && mixed_[a.axis][lines_[a.axis].line_of[rank]];
      if (way.seen == !here || mixes) return {r, way.id};
      way.seen = here;
    }
  }
  return {-1, -1};
}

}  // namespace trireme
