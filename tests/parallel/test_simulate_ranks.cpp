// The simulator over all ranks: what it says of generated plans and clusters keeps every rule that simulate.h states,
// folding changes nothing, and actions start in the order in which a run starts them.
#include <cmath>
#include <map>
#include <set>

#include "parallel/analysis/simulate.h"
#include "parallel/model/planned_traffic.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/check/order.h"
#include "parallel/runtime/step_probe.h"
#include "parallel/strategies/agreements.h"
#include "tests/parallel/pairs.h"
#include "tests/parallel/training.h"

namespace test_simulate_ranks {

using namespace trireme;
using namespace trireme::test;

namespace {

/// Numbers that follow from a seed.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : at_(seed * 1000003) {}
  int below(int n) { return static_cast<int>(mix(at_++) % static_cast<std::uint64_t>(n)); }
  int of(std::initializer_list<int> values) { return values.begin()[below(static_cast<int>(values.size()))]; }

 private:
  std::uint64_t at_;
};

/// The plan of a strategy over parts that differ, with all that a step agrees on; nothing: it is refused.
std::optional<Plan> plan_of(const Arrangement& how, Numbers& numbers) {
  std::vector<PartInfo> parts;
  Index at = 0;
  const auto comms = [&] {  // of layers; an axis has one rank, now and then
    std::map<ActionKind, std::vector<PlannedCall>> some;
    for (const Axis& axis : how.mesh)
      for (const ActionKind& half : {ActionKind::forward, ActionKind::backward_input, ActionKind::backward_weight})
        if (axis.name != "pipe" && numbers.below(4) == 0)
          some[half].push_back(
              {numbers.below(2) ? CallKind::all_reduce : CallKind::send, 3 * numbers.below(2000), axis.name, 3});
    return some;
  };
  for (int i = 0; i < 8; ++i, at = parts.back().slice.end)
    parts.push_back({.name = std::to_string(i),
                     .slice = {at, at + 1 + numbers.below(300)},
                     .cost = {.forward = 1e-6 * numbers.below(50),
                              .backward_input = 1e-6 * numbers.below(50),
                              .backward_weight = 1e-6 * numbers.below(50),
                              .output = numbers.below(5000)},
                     .comms = comms()});
  try {
    const Plan plan = parse_strategy(how.strategy)(serial(parts, at, 0, how.mesh));
    const AgreementOptions all{.batch_axis = plan.reduced_axis(), .checks = {.every = 1}, .norm = true, .ratios = 7};
    return with_agreements(plan, all);
  } catch (const Error&) { return {}; }
}
/// A strategy on a mesh of up to so many ranks.
Arrangement arrangement(const StrategyText& a, const StrategyText& b, int most, Numbers& numbers) {
  Arrangement how = smallest(a, b);
  if (numbers.below(2) == 0) std::ranges::reverse(how.mesh);
  for (Axis& axis : how.mesh) axis.size = axis.name == "pipe" ? numbers.of({2, 4}) : numbers.of({1, 2, 3, 8, 16, 64});
  for (Axis& axis : how.mesh)
    while (how.ranks() > most && axis.size > 1) axis.size /= 2;
  return how;
}
/// Nodes of up to three kinds, which all ranks find room on.
Cluster cluster_of(int ranks, bool alike, Numbers& numbers) {
  Cluster c{.nodes = {},
            .inside = {1e-9 * numbers.below(3000), 1e9 * numbers.below(3)},
            .between = {1e-9 * numbers.below(9000), 1e8 * numbers.below(5)},
            .jitter = alike ? 0 : 0.2 * numbers.below(2),
            .seed = static_cast<std::uint64_t>(numbers.below(100))};
  const int devices = numbers.of({1, 2, 4, 8, 256});
  do {
    const bool same = alike && numbers.below(4) > 0;
    c.nodes.push_back({.count = same ? ranks : 1 + numbers.below(4),
                       .devices = same ? devices : numbers.of({1, 2, 3, 8}),
                       .speed = alike ? 1 : 0.5 + 0.25 * numbers.below(5)});
  } while (c.devices() < ranks);
  return c;
}

/// A rank's coordinates; and back.
std::map<std::string, int> coordinates(const std::vector<Axis>& mesh, int rank) {
  std::map<std::string, int> all;
  for (std::size_t i = mesh.size(); i-- > 0; rank /= mesh[i].size) all[mesh[i].name] = rank % mesh[i].size;
  return all;
}
int rank_at(const std::vector<Axis>& mesh, std::map<std::string, int> at) {
  int rank = 0;
  for (const Axis& a : mesh) rank = rank * a.size + at[a.name];
  return rank;
}

/// The times of all ranks' actions in nanoseconds, judged by the rules one by one.
class Rules {
 public:
  Rules(const Plan& plan, const Cluster& cluster, const Simulation& s) : plan_(plan), cluster_(cluster), s_(s) {
    const int n = static_cast<int>(s.ranks.size());
    begin_.resize(n);
    end_.resize(n);
    start_.resize(n);
    for (const Span& span : s.timeline.spans) {
      begin_[span.rank].push_back(nanoseconds(span.begin));
      end_[span.rank].push_back(nanoseconds(span.end));
    }
    for (int r = 0; r < n; ++r) start_ranks(r);
  }
  /// The first rule that is broken; empty: none.
  std::string broken() const {
    for (int r = 0; r < std::ssize(start_); ++r) {
      Nanoseconds free = 0;
      std::vector<std::pair<Nanoseconds, ActionId>> linked;
      for (ActionId id = 0; id < std::ssize(actions(r)); ++id) {
        const Action& a = actions(r)[id];
        const std::string name = "rank " + std::to_string(r) + ": " + to_string(a);
        const bool alone = is_collective(a) && plan_.size(a.peer.axis) == 1;
        if (a.kind == ActionKind::recv) {
          const auto [other, send] = partner(r, id);
          if (end_[r][id] != std::max(start_[r][id], end_[other][send])) return name + " ends at another time";
        } else if ((is_collective(a) || a.kind == ActionKind::send) && !alone) {
          linked.push_back({start_[r][id], id});
        } else if (begin_[r][id] != start_[r][id] || end_[r][id] - begin_[r][id] != cost(r, id)) {
          return name + " takes another time";
        }
      }
      std::ranges::sort(linked);
      for (auto& [start, id] : linked) {
        const Action& a = actions(r)[id];
        const std::string name = "rank " + std::to_string(r) + ": " + to_string(a);
        const Nanoseconds ready = std::max(start, free);
        if (begin_[r][id] < ready || (a.kind == ActionKind::send && begin_[r][id] != ready))
          return name + " goes out of turn";
        if (end_[r][id] - begin_[r][id] != time(r, id)) return name + " takes another time on the link";
        if (a.kind != ActionKind::send) {
          ready_[group_key(r, id)].insert(ready);
          at_[group_key(r, id)].insert(begin_[r][id]);
        }
        free = end_[r][id];
      }
    }
    for (auto& [key, times] : at_)
      if (times.size() != 1 || *times.begin() != *ready_[key].rbegin())
        return "a collective does not begin when its last rank is ready";
    return "";
  }

 private:
  const std::vector<Action>& actions(int r) const { return plan_.programs[s_.timeline.programs[r]].actions; }
  void start_ranks(int r) {
    const Program& program = plan_.programs[s_.timeline.programs[r]];
    const auto waits = dependencies(program, plan_.parts);
    Nanoseconds computed = 0;  // the computations before it in the list have ended
    for (ActionId id = 0; id < std::ssize(waits); ++id) {
      const Action& a = program.actions[id];
      Nanoseconds at = a.stream == Stream::compute || a.on_ready ? 0 : computed;
      if (a.stream == Stream::compute) computed = end_[r][id];
      for (const Dependency& d : waits[id]) {
        const Nanoseconds spent = end_[r][d.on] - begin_[r][d.on];
        Nanoseconds done = end_[r][d.on];
        if (d.share == 0)
          done = start_[r].at(d.on);
        else if (is_backward(program.actions[d.on]))
          done = begin_[r][d.on] + std::llround(d.share * static_cast<double>(spent));
        at = std::max(at, done);
      }
      start_[r].push_back(at);
    }
  }
  Nanoseconds cost(int r, ActionId id) const {
    const Action& a = actions(r)[id];
    if (a.part < 0) return 0;
    const PartCost& c = plan_.parts[a.part].cost;
    const double all = a.kind == ActionKind::forward           ? c.forward
                       : a.kind == ActionKind::backward        ? c.backward_input + c.backward_weight
                       : a.kind == ActionKind::backward_input  ? c.backward_input
                       : a.kind == ActionKind::backward_weight ? c.backward_weight
                                                               : 0;
    Nanoseconds time = cluster_.compute(nanoseconds(all), r, static_cast<std::uint64_t>(id));
    for (const PlannedCall& comm : comms_of(plan_.parts, a)) {
      const auto ranks = group(r, comm.axis);
      const int p = static_cast<int>(ranks.size());
      const Link& link = cluster_.link(ranks);
      const bool message = comm.kind == CallKind::send;
      if (p > 1)
        time +=
            3 * (message ? message_time(link, comm.bytes / 3) : collective_time(link, comm.kind, p, comm.bytes / 3));
    }
    return time;
  }
  std::pair<int, ActionId> partner(int r, ActionId id) const {
    const Action& a = actions(r)[id];
    auto at = coordinates(plan_.axes, r);
    at[a.peer.axis] += a.peer.offset;
    const int other = rank_at(plan_.axes, at);
    for (ActionId i = 0; i < std::ssize(actions(other)); ++i) {
      const Action& b = actions(other)[i];
      if (is_message(b) && b.kind != a.kind && b.part == a.part && b.microbatch == a.microbatch &&
          b.peer.offset == -a.peer.offset)
        return {other, i};
    }
    return {-1, -1};
  }
  std::vector<int> group(int r, const std::string& axis) const {
    std::vector<int> all;
    auto mine = coordinates(plan_.axes, r);
    for (int other = 0; other < std::ssize(start_); ++other) {
      auto at = coordinates(plan_.axes, other);
      for (const std::string& name : names_in(axis)) at[name] = mine[name];
      if (at == mine) all.push_back(other);
    }
    return all;
  }
  /// Its ranks' first, the axis, and the how manieth of the rank's there it is.
  std::tuple<int, std::string, int> group_key(int r, ActionId id) const {
    const std::string& axis = actions(r)[id].peer.axis;
    int nth = 0;
    for (ActionId i = 0; i < id; ++i) nth += is_collective(actions(r)[i]) && actions(r)[i].peer.axis == axis;
    return {group(r, axis).front(), axis, nth};
  }
  Nanoseconds time(int r, ActionId id) const {
    const Action& a = actions(r)[id];
    if (a.kind == ActionKind::send) {
      const int ends[] = {r, partner(r, id).first};
      return message_time(cluster_.link(ends), plan_.parts[a.part].cost.output);
    }
    const auto ranks = group(r, a.peer.axis);
    const int p = static_cast<int>(ranks.size());
    const Link& link = cluster_.link(ranks);
    const Index n = a.slice.size(), even = n / p * p * 4, rest = 4 * n - even;
    const auto call = [&](CallKind kind, Index bytes) { return collective_time(link, kind, p, bytes); };
    if (a.kind == ActionKind::agree) {
      const bool one = a.payload != OperandKind::ratios;  // those are two numbers a tensor
      return call(a.peer.root < 0 ? CallKind::all_reduce : CallKind::broadcast,
                  a.payload == OperandKind::loss ? 4 : 8 * (one ? 1 : n));
    }
    if (a.codec) return call(CallKind::all_gather, 8 * n * p);  // topk of all numbers: with their positions
    if (a.kind == ActionKind::broadcast || a.peer.root >= 0) return call(CallKind::broadcast, 4 * n);
    if (a.kind == ActionKind::all_reduce) return call(CallKind::all_reduce, 4 * n);
    const bool reduces = a.kind == ActionKind::reduce_scatter;
    return (even > 0 ? call(reduces ? CallKind::reduce_scatter : CallKind::all_gather, even) : 0) +
           (rest > 0 ? call(reduces ? CallKind::all_reduce : CallKind::broadcast, rest) : 0);
  }

  const Plan& plan_;
  const Cluster& cluster_;
  const Simulation& s_;
  std::vector<std::vector<Nanoseconds>> begin_, end_, start_;  // by rank and action
  mutable std::map<std::tuple<int, std::string, int>, std::set<Nanoseconds>> ready_, at_;
};

bool is_image_split(const std::string& text) {
  return text.starts_with("spatial") || text == "tensor" || text == "one_weird_trick";
}

/// Calls f(arrangement, plan, numbers) for every pair of strategies whose plan is one.
template <class F>
void each_pair(int most, int seeds, F&& f) {
  for (auto& [a, b] : strategy_pairs())
    for (int seed = 0; seed < seeds; ++seed) {
      if (is_image_split(a.text) && is_image_split(b.text)) continue;
      Numbers numbers(static_cast<std::uint64_t>(seed) + std::hash<std::string>()(a.text + b.text) % 1000);
      const Arrangement how = arrangement(a, b, most, numbers);
      if (const auto plan = plan_of(how, numbers)) f(how, *plan, numbers);
    }
}

}  // namespace

TEST_CASE("simulated times keep the rules on generated plans and clusters") {
  int plans = 0;
  each_pair(12, 2, [&](const Arrangement& how, const Plan& plan, Numbers& numbers) {
    const Cluster cluster = cluster_of(how.ranks(), false, numbers);
    const Simulation s = simulate(plan, {.cluster = cluster, .folding = Folding::unfolded});
    INFO(how.text());
    REQUIRE(std::ssize(s.ranks) == how.ranks());
    CHECK(Rules(plan, cluster, s).broken() == "");
    ++plans;
  });
  CHECK(plans > 100);
}

TEST_CASE("the bytes per axis are those of the planned traffic") {
  int plans = 0;
  each_pair(12, 2, [&](const Arrangement& how, const Plan& plan, Numbers&) {
    for (const std::int64_t step : {0, 1, 3}) {
      const Simulation s = simulate(plan, {.step = step});
      for (std::size_t r = 0; r < plan.programs.size(); ++r) {
        std::map<std::string, Index> bytes, planned;
        for (const AxisTraffic& t : s.traffic[r])
          if (t.bytes > 0) bytes[t.axis] = t.bytes;
        for (auto& [axis, count] : planned_traffic(plan, r, {.step = step}))
          if (count.bytes > 0) planned[axis] = count.bytes;
        INFO(how.text() << ", step " << step);
        CHECK(bytes == planned);
      }
    }
    ++plans;
  });
  CHECK(plans > 100);
}

TEST_CASE("steps one behind the other carry and compute what each does alone, and end no later") {
  each_pair(12, 2, [&](const Arrangement& how, const Plan& plan, Numbers& numbers) {
    SimulateOptions options{.cluster = cluster_of(how.ranks(), false, numbers), .step = 2, .steps = 4};
    const Simulation all = simulate(plan, options);
    options.steps = 1;
    double alone = 0, busy = 0;
    std::map<std::string, Index> bytes;
    for (; options.step < 6; ++options.step) {
      const Simulation s = simulate(plan, options);
      alone += s.makespan;
      busy += s.busy[0];
      for (const AxisTraffic& t : s.traffic[0]) bytes[t.axis] += t.bytes;
    }
    INFO(how.text());
    for (const AxisTraffic& t : all.traffic[0]) CHECK(t.bytes == bytes[t.axis]);
    CHECK(all.busy[0] == Approx(busy));
    CHECK(all.makespan <= alone + 1e-12);
  });
}

TEST_CASE("folded equals unfolded bit for bit") {
  int folded = 0, not_folded = 0;
  each_pair(256, 4, [&](const Arrangement& how, const Plan& plan, Numbers& numbers) {
    const Cluster cluster = cluster_of(how.ranks(), numbers.below(5) > 0, numbers);
    const SimulateOptions options{.cluster = cluster, .loss = 1e-6, .update = 3e-9, .rows = 256};
    const Simulation a = simulate(plan, options);
    auto all = options;
    all.folding = Folding::unfolded;
    INFO(how.text());
    if (!a.folded) {
      ++not_folded;
      all.folding = Folding::folded;
      try {  // but for jitter, which is then no longer drawn, it may not
        const Simulation once = simulate(plan, all);
        CHECK(cluster.jitter > 0);
        CHECK((once.folded && once.expected && once.makespan > 0));
      } catch (const Error& e) { CHECK(std::string(e.what()).starts_with("simulate: ")); }
      return;
    }
    ++folded;
    const Simulation b = simulate(plan, all);
    REQUIRE(!b.folded);
    bool same = a.makespan == b.makespan && a.busy == b.busy && a.bubble == b.bubble;
    for (std::size_t r = 0; r < plan.programs.size(); ++r)
      for (std::size_t axis = 0; axis < a.traffic[r].size(); ++axis) {
        const AxisTraffic &x = a.traffic[r][axis], &y = b.traffic[r][axis];
        same = same && x.axis == y.axis && x.seconds == y.seconds && x.bytes == y.bytes;
      }
    std::map<std::pair<int, ActionId>, std::pair<double, double>> spans;  // by program
    for (const Span& s : a.timeline.spans) spans[{s.rank, s.action}] = {s.begin, s.end};
    for (const Span& s : b.timeline.spans)
      same = same && spans.at({b.timeline.programs[s.rank], s.action}) == std::pair(s.begin, s.end);
    for (std::size_t stream : {0, 1})
      for (std::size_t r = 0; r < b.ranks.size(); ++r)
        same = same && b.started[stream][r] == a.started[stream][b.timeline.programs[r]];
    CHECK(same);
  });
  CHECK(folded > 100);
  CHECK(not_folded > 50);
}

TEST_CASE("a run starts actions in the order in which they start in simulation") {
  if (threads_only()) return;
  int equal = 0;
  for (auto& [a, b] : strategy_pairs()) {
    const Arrangement how = smallest(a, b);
    Plan plan;
    Timeline measured;
    const auto run = [&](World& world) {
      Mesh mesh(world, how.mesh);
      Step step(Sequential{Conv2d(1, 4, 3), relu, MaxPool(2), flatten, Linear(36, 8), relu, Linear(8, 5)},
                cross_entropy, Sgd{.lr = 0.1}, mesh, parse_strategy(how.strategy), {.optimizer = {.clip_norm = 1}});
      Loader loader(Dataset(std::make_unique<Noise>(8, Shape{8, 8, 1})),
                    {.batch = 8, .shard = step.shard(), .workers = 0});
      const auto batch = loader.begin();
      StepProbe(step).record(true);
      (void)step(batch->x, batch->y).item();
      Timeline all = StepProbe(step).timeline();
      if (world.main()) {
        plan = step.plan();
        measured = std::move(all);
      }
      return 0;
    };
    try {
      on_ranks(how.ranks(), run);
    } catch (const Error& e) {
      INFO(e.what());
      CHECK(known_refusal(e.what()) != "");
      continue;
    }
    for (PartInfo& part : plan.parts) part.cost = {.forward = 1, .backward_input = 1, .backward_weight = 1};
    plan.axes = how.mesh;
    const Simulation s = simulate(plan, {.folding = Folding::unfolded});
    std::map<std::pair<int, Stream>, std::vector<std::pair<double, ActionId>>> order;
    for (const Span& span : measured.spans)
      order[{span.rank, plan.programs[measured.programs[span.rank]].actions[span.action].stream}].push_back(
          {span.begin, span.action});
    INFO(how.text());
    for (auto& [where, spans] : order) {
      std::ranges::sort(spans);
      std::vector<ActionId> started;
      for (auto& [begin, id] : spans) started.push_back(id);
      CHECK(started == s.started[static_cast<std::size_t>(where.second)][where.first]);
    }
    equal += !order.empty();
  }
  CHECK(equal > 50);
}

}  // namespace test_simulate_ranks
