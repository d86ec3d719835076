#include "parallel/analysis/collective_messages.h"

#include <algorithm>
#include <limits>
#include <queue>

namespace trireme {
namespace {

using collectives::Round;
using collectives::Rounds;

/// A message with bytes left to send between two nodes, or inside one node.
struct Flow {
  int from, to;  // indices of members
  int out, in;   // source and destination node
  double bytes;  // bytes left
  double rate = 0;
};

/// The current messages and their rates.
class Flows {
 public:
  explicit Flows(const Cluster& cluster) : cluster_(cluster) {
    for (const NodeGroup& g : cluster.nodes)
      devices_.insert(devices_.end(), static_cast<std::size_t>(g.count), g.devices);
    out_.resize(devices_.size());
    in_.resize(devices_.size());
    inside_.resize(devices_.size());
  }
  const Link& link(const Flow& f) const { return f.out == f.in ? cluster_.inside : cluster_.between; }
  void count(const Flow& f, int more) {
    if (f.out == f.in)
      inside_[f.out] += more;
    else {
      out_[f.out] += more;
      in_[f.in] += more;
    }
  }
  /// Rate in bytes per second.
  double rate(const Flow& f) const {
    const Link& l = link(f);
    if (l.bandwidth == 0) return std::numeric_limits<double>::infinity();
    const double own = l.bandwidth * l.efficiency;
    const auto share = [&](int node, int flows) { return devices_[node] * own / l.oversubscription / flows; };
    if (f.out == f.in) return std::min(own, share(f.out, inside_[f.out]));
    return std::min({own, share(f.out, out_[f.out]), share(f.in, in_[f.in])});
  }

 private:
  const Cluster& cluster_;
  std::vector<int> devices_, out_, in_, inside_;  // by node: number of devices; messages out, in and inside
};

struct Member {  // a rank
  int first;     // first member of its group
  int node;
  double unit;  // bytes per element
  Rounds rounds;
  std::size_t at = 0;                    // current round
  bool offers = false;                   // it has a message that has not begun
  bool sends = false, receives = false;  // current transfers that have not ended
  double end = 0;
  const Round& round() const { return rounds[at]; }
};

/// All messages of some groups, in the order of time.
class Exchange {
 public:
  Exchange(const Cluster& cluster, std::vector<Member> members) : flows_(cluster), members_(std::move(members)) {}
  /// Returns the members with the times at which their rounds ended.
  std::vector<Member> run() {
    for (int m = 0; m < std::ssize(members_); ++m) begin(m);
    while (!starts_.empty() || !flowing_.empty()) advance();
    for (const Member& m : members_)
      check(m.at == m.rounds.size(), ErrorKind::internal, "simulate", "a rank waits for a message that no rank sends");
    return std::move(members_);
  }

 private:
  using Start = std::pair<double, int>;  // time at which a member's first byte is sent

  void begin(int m) {
    Member& member = members_[m];
    const auto is_idle = [](const Round& r) { return r.out.size() == 0 && r.in.size() == 0; };
    while (member.at < member.rounds.size() && is_idle(member.round())) ++member.at;
    if (member.at == member.rounds.size()) {
      member.end = now_;
      return;
    }
    member.sends = member.offers = member.round().out.size() > 0;
    member.receives = member.round().in.size() > 0;
    if (member.offers) start(m);
    if (member.receives) start(member.first + member.round().from);
  }
  /// Starts a member's message if its receiver waits for it.
  void start(int m) {
    Member& member = members_[m];
    if (!member.offers) return;
    const Member& to = members_[member.first + member.round().to];
    if (!to.receives || member.first + to.round().from != m) return;
    member.offers = false;
    starts_.push({now_ + flows_.link(flow_of(m)).latency, m});
  }
  Flow flow_of(int m) const {
    const Member& member = members_[m];
    const int to = member.first + member.round().to;
    return {m, to, member.node, members_[to].node, static_cast<double>(member.round().out.size()) * member.unit};
  }
  void go_on(int m) {
    if (!members_[m].sends && !members_[m].receives) {
      ++members_[m].at;
      begin(m);
    }
  }
  /// Advances to the next moment at which a message begins or ends.
  void advance() {
    double next = starts_.empty() ? std::numeric_limits<double>::infinity() : starts_.top().first;
    const auto end = [&](const Flow& f) { return now_ + f.bytes / f.rate; };
    for (const Flow& f : flowing_) next = std::min(next, end(f));
    const auto rest =
        std::ranges::stable_partition(flowing_, [&](const Flow& f) { return end(f) > next * (1 + 1e-14); });
    const std::vector<Flow> done(rest.begin(), rest.end());
    flowing_.erase(rest.begin(), rest.end());
    for (Flow& f : flowing_) f.bytes -= f.rate * (next - now_);
    now_ = next;
    for (const Flow& f : done) {
      flows_.count(f, -1);
      members_[f.from].sends = members_[f.to].receives = false;
      go_on(f.from);
      go_on(f.to);
    }
    for (; !starts_.empty() && starts_.top().first <= now_; starts_.pop())
      flows_.count(flowing_.emplace_back(flow_of(starts_.top().second)), 1);
    for (Flow& f : flowing_) f.rate = flows_.rate(f);
  }

  Flows flows_;
  std::vector<Member> members_;
  std::vector<Flow> flowing_;
  std::priority_queue<Start, std::vector<Start>, std::greater<>> starts_;
  double now_ = 0;
};

}  // namespace

CollectiveMessages::CollectiveMessages(const Cluster& cluster, int ranks, const std::string& algorithm)
    : cluster_(cluster), ring_(collectives::ring()), all_reduce_(collectives::find_algorithm(algorithm)) {
  check(ranks <= most_ranks, "simulate",
        "collectives by messages are for up to {} ranks, the mesh has {}: leave them to the closed form", most_ranks,
        ranks);
  check(
      cluster.inside.measured.empty() && cluster.between.measured.empty(), "simulate",
      "the cluster's links have measured calls, which describe whole calls: collectives by messages need latencies and "
      "bandwidths");
}

bool CollectiveMessages::has(CallKind kind) { return collectives::is_scheduled(kind) || kind == CallKind::reduce; }

std::vector<Nanoseconds> CollectiveMessages::times(const std::vector<std::vector<int>>& groups, CallKind kind,
                                                   Index bytes) const {
  std::vector<Nanoseconds> all;
  if (kind == CallKind::broadcast || kind == CallKind::reduce) {  // a reduction runs in reverse and takes the same time
    Flows flows(cluster_);
    std::vector<std::vector<Flow>> chains;
    for (const auto& group : groups) {
      auto& chain = chains.emplace_back();
      for (std::size_t i = 1; i < group.size(); ++i) {
        chain.push_back({0, 0, cluster_.node_of(group[i - 1]), cluster_.node_of(group[i]), static_cast<double>(bytes)});
        flows.count(chain.back(), 1);
      }
    }
    for (const auto& chain : chains) {
      double latency = 0, longest = 0;
      for (const Flow& f : chain) {
        latency += flows.link(f).latency;
        longest = std::max(longest, f.bytes / flows.rate(f));
      }
      all.push_back(nanoseconds(latency + longest));
    }
    return all;
  }
  std::vector<Member> members;
  for (const auto& group : groups) {
    const int first = static_cast<int>(members.size()), p = static_cast<int>(group.size());
    const collectives::Blocks blocks = collectives::even_blocks(bytes * p, p);  // an element is 1 / p bytes
    for (int i = 0; i < p; ++i)
      members.push_back({first, cluster_.node_of(group[i]), 1.0 / p,
                         schedule(kind == CallKind::all_reduce ? all_reduce_ : ring_, kind, i, blocks)});
  }
  const std::vector<Member> ended = Exchange(cluster_, std::move(members)).run();
  auto at = ended.begin();
  for (const auto& group : groups) {
    const auto next = at + std::ssize(group);
    all.push_back(nanoseconds(std::max_element(at, next, [](auto& a, auto& b) { return a.end < b.end; })->end));
    at = next;
  }
  return all;
}

}  // namespace trireme
