#include "parallel/analysis/simulate.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <tuple>

#include "parallel/analysis/sim_programs.h"
#include "parallel/comm/world/mesh.h"
#include "parallel/plan/liveness.h"

namespace trireme {
namespace {

/// t shared out among so many, which gives the exact quotient where there is one.
double seconds(Nanoseconds t, Nanoseconds ranks = 1) {
  return static_cast<double>(t) / static_cast<double>(ranks) / 1e9;
}

/// Where ranks lie on nodes, and over which kind of link they communicate.
class Places {
 public:
  Places(const SimPrograms& plan, const Cluster& cluster) : plan_(plan) {
    const int ranks = plan.grid.size();
    check(ranks <= cluster.devices(), "simulate", "{} ranks on a cluster of {} devices", ranks, cluster.devices());
    for (int r = 0; r < ranks; ++r) {
      node_.push_back(cluster.node_of(r));
      same_speed_ = same_speed_ && cluster.speed_of(r) == cluster.speed_of(0);
    }
    for (const std::string& axis : plan.axes) {
      lines_.push_back(plan.grid.lines(axis));
      auto& between =
          between_.emplace_back(lines_.back().members.size() / static_cast<std::size_t>(lines_.back().size));
      for (int r = 0; r < ranks; ++r) {
        const auto line = static_cast<std::size_t>(lines_.back().line_of[r]);
        const int first = lines_.back().members[line * static_cast<std::size_t>(lines_.back().size)];
        between[line] = between[line] || node_[r] != node_[first];
      }
    }
  }

  bool same_speed() const { return same_speed_; }
  const RankLines& lines(int axis) const { return lines_[axis]; }
  bool between(int rank, int axis) const { return between_[axis][lines_[axis].line_of[rank]]; }
  /// Of a send or collective of the rank.
  bool between(int rank, const SimAction& a) const {
    if (a.is == SimAction::Is::collective) return between(rank, a.axis);
    const int other = plan_.grid.neighbour(rank, a.along, a.offset, a.ring);
    return other >= 0 && node_[rank] != node_[other];
  }
  /// A program and an action of it that go over another kind of link on some of its ranks; (-1, -1): there are none.
  std::pair<int, ActionId> differing() const {
    struct Way {
      ActionId id;
      int axis;  // of a collective, or of what layers send; -1: a message
      signed char seen = -1;
    };
    std::vector<std::vector<Way>> ways(plan_.programs.size());
    for (std::size_t r = 0; r < ways.size(); ++r) {
      const auto& actions = plan_.programs[r].actions;
      // What goes along one axis, and messages over one offset, are alike: the first of each will do.
      const auto add = [&](Way way) {
        const SimAction& a = actions[way.id];
        const auto alike = [&](const Way& w) {
          const SimAction& b = actions[w.id];
          return way.axis == w.axis && (way.axis >= 0 || (a.along == b.along && a.offset == b.offset));
        };
        if (std::ranges::none_of(ways[r], alike)) ways[r].push_back(way);
      };
      for (ActionId id = 0; id < std::ssize(actions); ++id) {
        if (actions[id].axis >= 0) add({id, actions[id].is == SimAction::Is::collective ? actions[id].axis : -1});
        for (const SimComm& c : actions[id].comms) add({id, c.axis});
      }
    }
    for (int rank = 0; rank < plan_.grid.size(); ++rank) {
      const int r = plan_.program_of(rank);
      for (Way& way : ways[r]) {
        const bool here = way.axis >= 0 ? between(rank, way.axis) : between(rank, plan_.programs[r].actions[way.id]);
        if (way.seen == !here) return {r, way.id};
        way.seen = here;
      }
    }
    return {-1, -1};
  }

 private:
  const SimPrograms& plan_;
  std::vector<int> node_;  // by rank
  std::vector<RankLines> lines_;
  std::vector<std::vector<char>> between_;  // by axis and line
  bool same_speed_ = true;
};

/// The events. Simulated ranks are all of the mesh, or, folded, one of each program: then what others of its program
/// would do along other axes happens to the rank itself at that moment.
class Simulator {
 public:
  Simulator(const SimPrograms& plan, const Places& places, const Cluster& cluster, bool folded)
      : plan_(plan), places_(places), cluster_(cluster), folded_(folded), grid_(plan.grid) {
    if (folded) {
      std::vector<Axis> axes = plan.grid.axes();
      for (std::size_t i = 0; i < axes.size(); ++i)
        if (plan.programs.size() == 1 || i != plan.stage_axis) axes[i].size = 1;
      grid_ = RankGrid(axes);
    }
    for (const std::string& axis : plan.axes) {
      lines_.push_back(folded ? grid_.lines(axis) : RankLines{});
      std::size_t most = 0;
      for (const SimProgram& program : plan.programs)
        most = std::max(most, program.collectives[pending_.size()].size());
      each_.push_back(most);
      const RankLines& all = lines(pending_.size());
      pending_.emplace_back(most * all.members.size() / static_cast<std::size_t>(all.size));
    }
    std::size_t all = 0;
    for (int r = 0; r < grid_.size(); ++r) {
      program_.push_back(folded ? r : plan.program_of(r));
      world_.push_back(folded ? plan.grid.neighbour(0, plan.stage_axis, r, true) : r);
      first_.push_back(all);
      all += actions(r).size();
    }
    states_.reserve(all);
    for (int r = 0; r < grid_.size(); ++r)
      for (const SimAction& a : actions(r)) states_.push_back({.waits = a.waits});
    links_.resize(program_.size());
  }

  /// The rank and action that never end; (-1, -1): all have ended.
  std::pair<int, ActionId> run() {
    for (int r = 0; r < grid_.size(); ++r) {
      for (ActionId id = 0; id < std::ssize(actions(r)); ++id)
        if (actions(r)[id].waits == 0) begun(r, id);
      settle();
    }
    while (!starts_.empty()) {
      const Start next = starts_.top();
      starts_.pop();
      enqueue(next.rank, next.id);
      settle();
    }
    for (int r = 0; r < grid_.size(); ++r)
      for (ActionId id = 0; id < std::ssize(actions(r)); ++id)
        if (at(r, id).waits != ended) return {r, id};
    return {-1, -1};
  }

  int ranks() const { return grid_.size(); }
  int program(int rank) const { return program_[rank]; }
  int world(int rank) const { return world_[rank]; }
  Nanoseconds begin(int rank, ActionId id) const { return states_[first_[rank] + id].begin; }
  Nanoseconds end(int rank, ActionId id) const { return states_[first_[rank] + id].end; }
  const std::vector<SimAction>& actions(int rank) const { return plan_.programs[program_[rank]].actions; }
  Nanoseconds took(int rank, const SimAction& a) const { return a.took[places_.between(world_[rank], a)]; }
  Nanoseconds took(int rank, const SimComm& c) const { return c.took[places_.between(world_[rank], c.axis)]; }

 private:
  static constexpr Nanoseconds unknown = -1;
  static constexpr int ended = -1;  // State::waits
  struct State {                    // of an action of a rank
    Nanoseconds begin = 0;          // the latest known of what it waits for, then its start
    Nanoseconds end = unknown;      // of a receive that has not begun: the arrival
    int waits = 0;                  // for so many
  };
  /// An operation gets into its rank's link.
  struct Start {
    Nanoseconds time;
    int rank;
    ActionId id;
    bool operator<(const Start& o) const { return std::tie(time, rank, id) > std::tie(o.time, o.rank, o.id); }
  };
  struct RankLink {
    Nanoseconds free = 0;         // when what is known to be in front of all else has ended
    bool waits = false;           // a collective is at the head that others have not come to
    std::vector<ActionId> queue;  // behind it
    std::size_t head = 0;
  };
  struct Pending {  // a collective
    int come = 0;
    Nanoseconds latest = 0;
  };
  struct Note {  // something that the action waits for is done at that time
    int rank;
    ActionId id;
    Nanoseconds time;
  };

  State& at(int rank, ActionId id) { return states_[first_[rank] + id]; }
  const RankLines& lines(std::size_t axis) const {
    return folded_ ? lines_[axis] : places_.lines(static_cast<int>(axis));
  }

  /// All that follows from what is known.
  void settle() {
    while (!notes_.empty() || !freed_.empty()) {
      if (!notes_.empty()) {
        const Note n = notes_.back();
        notes_.pop_back();
        State& s = at(n.rank, n.id);
        s.begin = std::max(s.begin, n.time);
        if (--s.waits == 0) begun(n.rank, n.id);
        continue;
      }
      const int rank = freed_.back();
      freed_.pop_back();
      RankLink& link = links_[rank];
      while (!link.waits && link.head < link.queue.size()) carry(rank, link.queue[link.head++]);
      if (link.head == link.queue.size()) link.queue.clear(), link.head = 0;
    }
  }
  template <class F>
  void each_edge(int rank, ActionId id, F&& f) {
    const SimProgram& program = plan_.programs[program_[rank]];
    for (int e = program.first_edge[id]; e < program.first_edge[id + 1]; ++e) f(program.edges[e]);
  }
  /// The time at which it starts is known: begin_.
  void begun(int rank, ActionId id) {
    const auto [now, arrived, waits] = at(rank, id);
    const SimAction& a = actions(rank)[id];
    each_edge(rank, id, [&](const SimEdge& e) {
      if (e.share == 0) notes_.push_back({rank, e.to, now});
    });
    if (a.is == SimAction::Is::send || a.is == SimAction::Is::collective) {
      starts_.push({now, rank, id});
    } else if (a.is == SimAction::Is::recv) {
      if (arrived != unknown) finish(rank, id, std::max(now, arrived), 0);
    } else {
      Nanoseconds time = a.cost == 0 ? 0 : cluster_.compute(a.cost, world_[rank], plan_.key(program_[rank], id));
      for (const SimComm& c : a.comms) time += took(rank, c);
      finish(rank, id, now + time, time);
    }
  }
  /// inner: of its time, in which others may start in its midst.
  void finish(int rank, ActionId id, Nanoseconds when, Nanoseconds inner) {
    State& s = at(rank, id);
    s.end = when, s.waits = ended;
    each_edge(rank, id, [&](const SimEdge& e) {
      if (e.share == 0) return;
      notes_.push_back({rank, e.to, when - inner + std::llround(e.share * static_cast<double>(inner))});
    });
  }
  void enqueue(int rank, ActionId id) {
    RankLink& link = links_[rank];
    if (link.waits || link.head < link.queue.size())
      link.queue.push_back(id);
    else
      carry(rank, id);
  }
  /// At the head of its rank's link.
  void carry(int rank, ActionId id) {
    RankLink& link = links_[rank];
    const SimAction& a = actions(rank)[id];
    const Nanoseconds ready = std::max(begin(rank, id), link.free), time = took(rank, a);
    if (a.is == SimAction::Is::send) {
      link.free = ready + time;
      const bool here = folded_ && a.ring;
      const int other = here ? rank : grid_.neighbour(rank, a.along, a.offset, a.ring);
      if (other >= 0 && a.partner >= 0) arrive(other, a.partner, link.free);
      return finish(rank, id, link.free, 0);
    }
    const RankLines& all = lines(static_cast<std::size_t>(a.axis));
    const std::size_t line = static_cast<std::size_t>(all.line_of[rank]);
    Pending& meeting = pending_[a.axis][line * each_[a.axis] + static_cast<std::size_t>(a.nth)];
    meeting.latest = std::max(meeting.latest, ready);
    link.waits = true;
    if (++meeting.come < all.size) return;
    for (int m = 0; m < all.size; ++m) {
      const int member = all.members[line * static_cast<std::size_t>(all.size) + static_cast<std::size_t>(m)];
      links_[member].waits = false, links_[member].free = meeting.latest + time;
      if (links_[member].head < links_[member].queue.size()) freed_.push_back(member);
      finish(member, plan_.programs[program_[member]].collectives[a.axis][a.nth], meeting.latest + time, 0);
    }
  }
  void arrive(int rank, ActionId id, Nanoseconds when) {
    State& s = at(rank, id);
    if (s.waits == 0)
      finish(rank, id, std::max(s.begin, when), 0);
    else
      s.end = when;  // until it has begun
  }

  const SimPrograms& plan_;
  const Places& places_;
  const Cluster& cluster_;
  const bool folded_;
  RankGrid grid_;                              // of the ranks that are simulated
  std::vector<RankLines> lines_;               // folded: by axis
  std::vector<std::size_t> each_;              // by axis: the most collectives of a rank along it
  std::vector<std::vector<Pending>> pending_;  // by axis; by line, then by SimAction::nth
  std::vector<int> program_, world_;           // by rank
  std::vector<std::size_t> first_;             // of each rank's actions in states_
  std::vector<State> states_;                  // rank by rank
  std::vector<RankLink> links_;                // by rank
  std::priority_queue<Start> starts_;
  std::vector<Note> notes_;
  std::vector<int> freed_;  // ranks whose queue may go on
};

/// What the simulated ranks did, by program.
class Summary {
 public:
  Summary(const Plan& plan, const SimPrograms& programs, const Simulator& sim)
      : plan_(plan), programs_(programs), sim_(sim) {}

  void add_totals(Simulation& s) const {
    const std::size_t n = plan_.programs.size(), axes = programs_.axes.size();
    std::vector<Nanoseconds> busy(n), count(n);
    std::vector<std::vector<Nanoseconds>> link(n, std::vector<Nanoseconds>(axes));
    Nanoseconds last = 0, all_busy = 0;
    for (int rank = 0; rank < sim_.ranks(); ++rank) {
      const int r = sim_.program(rank);
      ++count[r];
      for (ActionId id = 0; id < std::ssize(sim_.actions(rank)); ++id) {
        const SimAction& a = sim_.actions(rank)[id];
        last = std::max(last, sim_.end(rank, id));
        if (a.is == SimAction::Is::compute) busy[r] += sim_.end(rank, id) - sim_.begin(rank, id);
        if (a.axis >= 0) link[r][a.axis] += sim_.took(rank, a);
        for (const SimComm& c : a.comms) link[r][c.axis] += sim_.took(rank, c), busy[r] -= sim_.took(rank, c);
      }
    }
    for (std::size_t r = 0; r < n; ++r) {
      all_busy += busy[r];
      s.busy.push_back(seconds(busy[r], count[r]));
      s.in_flight.push_back(peak_in_flight(plan_.programs[r]));
      auto& traffic = s.traffic.emplace_back();
      for (std::size_t a = 0; a < axes; ++a) traffic.push_back({programs_.axes[a], seconds(link[r][a], count[r]), 0});
      for (const SimAction& action : programs_.programs[r].actions) {
        if (action.axis >= 0) traffic[action.axis].bytes += action.bytes;
        for (const SimComm& c : action.comms) traffic[c.axis].bytes += c.bytes;
      }
    }
    s.makespan = seconds(last);
    s.bubble = all_busy > 0 ? static_cast<double>(last * sim_.ranks() - all_busy) / static_cast<double>(all_busy) : 0;
  }

  void add_row(Simulation& s, int rank) const {
    const int row = static_cast<int>(s.timeline.programs.size());
    s.timeline.programs.push_back(sim_.program(rank));
    s.ranks.push_back(sim_.world(rank));
    std::array<std::vector<std::pair<Nanoseconds, ActionId>>, 2> order;
    for (ActionId id = 0; id < std::ssize(sim_.actions(rank)); ++id) {
      const SimAction& a = sim_.actions(rank)[id];
      const Nanoseconds begin = sim_.begin(rank, id), end = sim_.end(rank, id);
      order[static_cast<std::size_t>(plan_.programs[sim_.program(rank)].actions[id].stream)].push_back({begin, id});
      const bool linked = a.is == SimAction::Is::send || a.is == SimAction::Is::collective;
      s.timeline.spans.push_back({row, id, seconds(linked ? end - sim_.took(rank, a) : begin), seconds(end)});
    }
    for (std::size_t stream = 0; stream < order.size(); ++stream) {
      std::ranges::sort(order[stream]);
      auto& ids = s.started[stream].emplace_back();
      for (auto& [begin, id] : order[stream]) ids.push_back(id);
    }
  }

 private:
  const Plan& plan_;
  const SimPrograms& programs_;
  const Simulator& sim_;
};

/// Whether ranks of a program are simulated once.
bool folds(const Plan& plan, const Places& places, const Cluster& cluster, Folding folding) {
  if (folding == Folding::unfolded) return false;
  const bool alike = cluster.jitter == 0 && places.same_speed();
  const auto [program, id] = alike ? places.differing() : std::pair(-1, -1);
  if (folding == Folding::automatic) return alike && program < 0;
  check(alike, "simulate", "ranks of one program take different times, by jitter or by their devices' speeds");
  check(program < 0, "simulate", "program {}: {} goes over links of several kinds",
        plan.programs[std::max(program, 0)].name, [&] { return to_string(plan.programs[program].actions[id]); });
  return true;
}

}  // namespace

Cluster flat_cluster(int ranks, const Link& link) {
  return {.nodes = {{.count = ranks}}, .inside = link, .between = link};
}

Simulation simulate(const Plan& plan, const SimulateOptions& options) {
  const Cluster cluster = options.cluster ? *options.cluster : flat_cluster(ranks_of(mesh_of(plan)));
  validate(cluster);
  const SimPrograms programs(plan, options, cluster);
  const Places places(programs, cluster);
  Simulation s;
  s.folded = folds(plan, places, cluster, options.folding);
  Simulator sim(programs, places, cluster, s.folded);
  const auto [rank, id] = sim.run();
  check(rank < 0, "simulate", "rank {}, program {}: {} never ends", rank < 0 ? 0 : sim.world(rank),
        plan.programs[rank < 0 ? 0 : sim.program(rank)].name,
        [&] { return to_string(plan.programs[sim.program(rank)].actions[id]); });
  const Summary summary(plan, programs, sim);
  summary.add_totals(s);
  if (sim.ranks() <= options.rows || s.folded)
    for (int r = 0; r < sim.ranks(); ++r) summary.add_row(s, r);
  else
    for (int program = 0; program < std::ssize(plan.programs); ++program)
      summary.add_row(s, programs.grid.neighbour(0, programs.stage_axis, program, true));
  return s;
}

}  // namespace trireme
