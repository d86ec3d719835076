#include "parallel/analysis/simulate.h"

#include <map>
#include <queue>
#include <set>
#include <tuple>

#include "parallel/plan/action_kind.h"
#include "parallel/plan/liveness.h"

namespace trireme {
namespace {

class Simulator {
 public:
  Simulator(const Plan& plan, const SimulateOptions& options)
      : plan_(plan), options_(options), link_free_(plan.roles.size()) {
    for (std::size_t r = 0; r < plan.roles.size(); ++r) {
      first_.push_back(static_cast<int>(nodes_.size()));
      for (const Action& a : plan.roles[r].actions) nodes_.push_back({.role = static_cast<int>(r), .action = &a});
    }
    for (std::size_t r = 0; r < plan.roles.size(); ++r) connect(static_cast<int>(r));
    meet_messages();
    meet_collectives();
  }

  Timeline run() {
    for (int n = 0; n < static_cast<int>(nodes_.size()); ++n)
      if (nodes_[n].unmet == 0) begin(n, 0);
    while (!events_.empty()) {
      const Event e = events_.top();
      events_.pop();
      if (e.released)
        release(e.node, e.time);
      else
        finish(e.node, e.time);
    }
    Timeline timeline;
    for (std::size_t r = 0; r < plan_.roles.size(); ++r) timeline.roles.push_back(static_cast<int>(r));
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      const Node& node = nodes_[n];
      check(node.finished, "simulate", "role {}: {} never ends", plan_.roles[node.role].name,
            [&] { return to_string(*node.action); });
      timeline.spans.push_back({node.role, static_cast<int>(n) - first_[node.role], node.begin, node.end});
    }
    return timeline;
  }

 private:
  struct Edge {
    int to;
    double at;  // share of this action that must be done; 0: it has started
  };
  struct Node {
    int role;
    const Action* action;
    std::vector<Edge> edges = {};
    int unmet = 0;
    int meeting = -1;  // of meetings_: what it does together with others
    double begin = 0, end = 0;
    bool finished = false;
  };
  struct PendingOp {
    std::vector<int> nodes;
    std::set<int> senders;  // roles whose link it occupies
    double seconds = 0;
    std::size_t come = 0;
  };
  struct Event {
    double time;
    int order, node;
    bool released;  // a demand of node is met; else node finishes
    bool operator<(const Event& other) const { return std::tie(time, order) > std::tie(other.time, other.order); }
  };

  static constexpr Index agreed_bytes = 8;
  double per_byte() const { return options_.bandwidth > 0 ? 1 / options_.bandwidth : 0; }

  void connect(int role) {
    auto& actions = plan_.roles[role].actions;
    std::map<Stream, ActionId> last;
    auto edge = [&](ActionId from, ActionId to, double at) {
      nodes_[first_[role] + from].edges.push_back({first_[role] + to, at});
      ++nodes_[first_[role] + to].unmet;
    };
    for (ActionId id = 0; id < static_cast<int>(actions.size()); ++id) {
      const Action& a = actions[id];
      if (auto before = last.find(a.stream); before != last.end())
        edge(before->second, id, a.stream == Stream::compute ? 1 : 0);
      last[a.stream] = id;
      for (ActionId from : a.after) edge(from, id, a.on_ready ? ready(actions[from], a.slice) : 1);
    }
  }

  double ready(const Action& backward, const Slice& slice) const {
    if (!is_backward(backward) || backward.part < 0) return 1;
    const Slice& part = plan_.parts[backward.part].slice;
    if (part.size() <= 0) return 1;
    return static_cast<double>(part.end - std::max(part.begin, slice.begin)) / static_cast<double>(part.size());
  }

  void meet(std::vector<int> nodes, std::set<int> senders, double seconds) {
    for (int n : nodes) nodes_[n].meeting = static_cast<int>(meetings_.size());
    meetings_.push_back({std::move(nodes), std::move(senders), seconds});
  }

  // Along an axis other than the roles', all coordinates run one list at the same times: what a rank sends there, it
  // also receives at that moment.
  void meet_messages() {
    std::map<std::tuple<int, int, std::string, int, int, int, Index>, std::queue<int>> sends;
    auto key = [&](int from, int to, const Action& a, int offset) {
      return std::tuple(from, to, a.peer.axis, offset, a.part, a.microbatch, a.slice.begin);
    };
    auto other = [&](const Node& n) {
      return n.action->peer.axis == plan_.stage_axis ? n.role + n.action->peer.offset : n.role;
    };
    for (int n = 0; n < static_cast<int>(nodes_.size()); ++n)
      if (const Action& a = *nodes_[n].action; a.kind == ActionKind::send)
        sends[key(nodes_[n].role, other(nodes_[n]), a, a.peer.offset)].push(n);
    for (int n = 0; n < static_cast<int>(nodes_.size()); ++n) {
      const Action& a = *nodes_[n].action;
      if (a.kind != ActionKind::recv) continue;
      auto& queue = sends[key(other(nodes_[n]), nodes_[n].role, a, -a.peer.offset)];
      check(!queue.empty(), "simulate", "role {}: {}: nobody sends it", plan_.roles[nodes_[n].role].name,
            [&] { return to_string(a); });
      const int send = queue.front();
      queue.pop();
      const Node& from = nodes_[send];
      const Index bytes = a.part >= 0 ? plan_.parts[a.part].cost.output : 0;
      meet({send, n}, {from.role}, options_.latency + static_cast<double>(bytes) * per_byte());
    }
  }

  // The k-th collective of each role along their common axis is one; along others it is the role's own.
  void meet_collectives() {
    std::map<std::size_t, std::vector<int>> common;
    std::vector<std::size_t> count(plan_.roles.size());
    for (int n = 0; n < static_cast<int>(nodes_.size()); ++n) {
      if (!is_collective(*nodes_[n].action)) continue;
      const int role = nodes_[n].role;
      if (plan_.roles.size() > 1 && nodes_[n].action->peer.axis == plan_.stage_axis)
        common[count[role]++].push_back(n);
      else
        meet({n}, {role}, collective_seconds(*nodes_[n].action));
    }
    for (auto& [k, nodes] : common) {
      std::set<int> roles;
      for (int n : nodes) roles.insert(nodes_[n].role);
      meet(nodes, roles, collective_seconds(*nodes_[nodes[0]].action));
    }
  }

  double collective_seconds(const Action& a) const {
    const int p = plan_.size(a.peer.axis);
    const Index bytes = a.kind == ActionKind::agree ? agreed_bytes : a.slice.size() * options_.element;
    const double n = static_cast<double>(bytes), b = per_byte(), hops = p - 1;
    if (p == 1) return 0;
    if (a.peer.root >= 0) return hops * options_.latency + n * b;
    const double once = hops * (options_.latency + n / p * b);
    const bool reduced =
        a.kind == ActionKind::all_reduce || a.kind == ActionKind::average || a.kind == ActionKind::agree;
    return reduced ? 2 * once : once;
  }

  double compute_seconds(const Action& a) const {
    if (a.kind == ActionKind::loss) return options_.loss;
    if (a.kind == ActionKind::update)
      return options_.update * static_cast<double>(a.slice.size()) / (a.peer.root < 0 ? plan_.size(a.peer.axis) : 1);
    if (a.part < 0) return 0;
    const PartCost& cost = plan_.parts[a.part].cost;
    if (a.kind == ActionKind::forward) return cost.forward;
    if (a.kind == ActionKind::backward) return cost.backward_input + cost.backward_weight;
    if (a.kind == ActionKind::backward_input) return cost.backward_input;
    return a.kind == ActionKind::backward_weight ? cost.backward_weight : 0;
  }

  void post(double time, int node, bool released) { events_.push({time, next_order_++, node, released}); }

  void begin(int n, double now) {
    Node& node = nodes_[n];
    node.begin = now;
    for (const Edge& e : node.edges)
      if (e.at == 0) post(now, e.to, true);
    if (node.meeting < 0) {
      const double seconds = compute_seconds(*node.action);
      for (const Edge& e : node.edges)
        if (e.at > 0 && e.at < 1) post(now + e.at * seconds, e.to, true);
      post(now + seconds, n, false);
      return;
    }
    PendingOp& m = meetings_[node.meeting];
    if (++m.come < m.nodes.size()) return;
    double start = now;
    for (int role : m.senders) start = std::max(start, link_free_[role]);
    for (int role : m.senders) link_free_[role] = start + m.seconds;
    for (int other : m.nodes) {
      if (nodes_[other].action->kind != ActionKind::recv) nodes_[other].begin = start;
      post(start + m.seconds, other, false);
    }
  }
  void finish(int n, double now) {
    nodes_[n].end = now;
    nodes_[n].finished = true;
    const bool whole = nodes_[n].meeting >= 0;  // what others do together has no inner progress
    for (const Edge& e : nodes_[n].edges)
      if (e.at >= 1 || (whole && e.at > 0)) release(e.to, now);
  }
  void release(int n, double now) {
    if (--nodes_[n].unmet == 0) begin(n, now);
  }

  const Plan& plan_;
  const SimulateOptions& options_;
  std::vector<Node> nodes_;
  std::vector<int> first_;  // node of each role's first action
  std::vector<PendingOp> meetings_;
  std::vector<double> link_free_;  // by role
  std::priority_queue<Event> events_;
  int next_order_ = 0;
};

}  // namespace

Simulation simulate(const Plan& plan, const SimulateOptions& options) {
  Simulation s;
  s.timeline = Simulator(plan, options).run();
  s.makespan = s.timeline.end();
  s.busy.resize(plan.roles.size());
  for (const Span& span : s.timeline.spans)
    if (plan.roles[span.rank].actions[span.action].stream == Stream::compute)
      s.busy[span.rank] += span.end - span.begin;
  double idle = 0, busy = 0;
  for (double b : s.busy) idle += s.makespan - b, busy += b;
  s.bubble = busy > 0 ? idle / busy : 0;
  for (auto& role : plan.roles) s.in_flight.push_back(peak_in_flight(role));
  return s;
}

}  // namespace trireme
