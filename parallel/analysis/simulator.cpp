#include "parallel/analysis/simulator.h"

#include <algorithm>
#include <cmath>

namespace trireme {

Simulator::Simulator(const SimPrograms& plan, const Places& places, const SimRanks& ranks, SimRecord& record)
    : plan_(plan),
      places_(places),
      ranks_(ranks),
      record_(record),
      steps_(plan.options.steps),
      overhead_(nanoseconds(plan.options.overhead)),
      between_steps_(nanoseconds(plan.options.between_steps)),
      overlaps_(plan.cluster.overlaps),
      second_copies_(!overlaps_ && plan.options.second_copies && !(ranks.folded && plan.cluster.jitter > 0)),
      grid_(plan.grid),
      links_(ranks.world.size()),
      interpreters_(ranks.world.size()),
      clock_(ranks.world.size()),
      step_(ranks.world.size()),
      waits_(ranks.world.size(), -1),
      resumes_(ranks.world.size()),
      told_(ranks.world.size(), nothing),
      servers_(ranks.world.size()) {
  if (ranks.folded) {
    std::vector<Axis> axes = plan.grid.axes();
    for (std::size_t i = 0; i < axes.size(); ++i)
      if (plan.programs.size() == 1 || i != plan.stage_axis) axes[i].size = 1;
    grid_ = RankGrid(axes);
  }
  for (int axis = 0; axis < std::ssize(plan.axes); ++axis) {
    lines_.push_back(ranks.folded ? plan.lines(grid_, axis) : RankLines{});
    std::size_t most = 0;
    for (const SimProgram& program : plan.programs) most = std::max(most, program.collectives[axis].size());
    each_.push_back(most);
    pending_.emplace_back(most * static_cast<std::size_t>(lines(axis).lines()));
  }
  if (ranks.folded && plan.cluster.jitter > 0) jitter_.emplace(plan, places, ranks);
  if (!plan.options.collectives.empty()) messages_.emplace(plan.cluster, plan.grid.size(), plan.options.collectives);
  std::size_t all = 0;
  for (int r = 0; r < std::ssize(links_); ++r) {
    first_.push_back(all);
    all += actions(r).size();
    const Program& program = plan.plan.programs[ranks.program[r]];
    if (!program.serves()) continue;
    const std::size_t along = plan.grid.find(axis_of(plan.plan, plan.channels.front()));
    servers_[r] = std::make_unique<SimServer>(plan, program, grid_.coordinate(r, along));
  }
  states_.resize(all);
}

std::pair<int, ActionId> Simulator::run() {
  for (int r = static_cast<int>(std::ssize(links_)); r-- > 0;) ready_.push_back(r);
  while (!freed_.empty() || !ready_.empty() || !later_.empty()) {
    if (freed_.empty() && ready_.empty()) {  // all other ranks are at later times
      const auto [now, rank, id] = later_.top();
      later_.pop();
      if (id < 0)
        look(rank, now);
      else if (const SimAction& a = actions(rank)[id]; a.ahead || a.answers)
        exchange(rank, id);
      else
        hand_over(rank, id);
    } else if (!freed_.empty()) {
      const int rank = freed_.back();
      freed_.pop_back();
      if (overlaps_ || waits_[rank] >= 0) carry_on(rank);
    } else {
      const int rank = ready_.back();
      ready_.pop_back();
      go_on(rank);
    }
  }
  for (int r = 0; r < std::ssize(links_); ++r)
    if (step_[r] < steps_) return {r, waits_[r]};
  return {-1, -1};
}

Nanoseconds Simulator::end() const { return jitter_ ? jitter_->end(clock_) : *std::ranges::max_element(clock_); }

/// Duration by messages. All lines of ranks that run the same programs are assumed to make the call at the same time.
Nanoseconds Simulator::by_messages(int rank, const SimAction& a) const {
  const RankLines& all = lines(a.axis);
  const auto program = [&](int line) { return ranks_.program[all.members[all.first[line]]]; };
  const int own = all.line_of[rank];
  auto& took = took_[{a.axis, program(own), a.nth}];
  if (took.empty()) {
    std::vector<std::vector<int>> groups;
    std::vector<int> which;
    for (int line = 0; line < all.lines(); ++line)
      if (program(line) == program(own)) {
        groups.emplace_back(all.members.begin() + all.first[line], all.members.begin() + all.first[line + 1]);
        which.push_back(line);
      }
    took.resize(static_cast<std::size_t>(all.lines()));
    for (const PlannedCall& call : a.calls) {
      const bool messages = CollectiveMessages::has(call.kind);
      const auto times = messages ? messages_->times(groups, call.kind, call.bytes) : std::vector<Nanoseconds>();
      for (std::size_t i = 0; i < which.size(); ++i) {
        const Link& link = places_.between(groups[i].front(), a.axis) ? plan_.cluster.between : plan_.cluster.inside;
        took[which[i]] +=
            messages ? times[i] : collective_time(link, call.kind, static_cast<int>(groups[i].size()), call.bytes);
      }
    }
  }
  return took[own];
}

Nanoseconds Simulator::cost(int rank, ActionId id) const {
  const SimAction& a = actions(rank)[id];
  const auto key = plan_.key(ranks_.program[rank], step_of(rank), id);
  Nanoseconds time = a.cost == 0 ? 0
                     : jitter_   ? jitter_->mean(a.cost, rank)
                                 : plan_.cluster.compute(a.cost, ranks_.world[rank], key);
  for (const SimComm& c : a.comms) time += c.took[places_.between(ranks_.world[rank], c.axis)];
  return time;
}

bool Simulator::runs(int rank, const SimAction& a) const {
  if (servers_[rank]) return a.phase == servers_[rank]->phase();
  return plan_.is_due(a, step_[rank]) && (step_[rank] >= resumes_[rank] || a.reports);
}

void Simulator::begin_step(int rank) {
  const auto begin = states_.begin() + static_cast<std::ptrdiff_t>(first_[rank]);
  std::fill_n(begin, actions(rank).size(), State{});
  for (auto box = boxes_.lower_bound({rank, -1, 0}); box != boxes_.end(); ++box) {
    const auto [to, kind, id] = box->first;
    if (to != rank || kind != -1) break;
    auto& come = box->second.come;
    if (!come.empty() && runs(rank, actions(rank)[id])) {
      at(rank, id).end = come.front().when;
      at(rank, id).from = come.front().from;
      come.pop_front();
    }
  }
}

void Simulator::end_step(int rank) {
  const auto& list = actions(rank);
  for (ActionId id = 0; id < std::ssize(list); ++id) {
    const Nanoseconds begin = at(rank, id).begin, end = at(rank, id).end;
    const SimAction& a = list[id];
    if (begin == unknown) continue;
    const Nanoseconds over = a.axis < 0 ? -1 : a.trades ? linked(rank, a) : took(rank, a);
    record_.count(rank, a, a.is == SimAction::Is::compute ? end - begin : 0, over);
    record_.span(rank, id, begin, end, a.ahead ? -1 : over + mixing(rank, a));  // ahead: it may end in a later step
  }
  record_.end_step(rank);
  if (told_[rank] != nothing) resumes_[rank] = std::exchange(told_[rank], nothing);
}

/// Advances a rank until it waits for an event without a known end.
void Simulator::go_on(int rank) {
  Rank as{*this, rank};
  waits_[rank] = -1;
  while (step_[rank] < steps_) {
    if (!interpreters_[rank].run(as)) return;
    // A server that forwards updates of others counts steps.
    if (servers_[rank] && plan_.programs[ranks_.program[rank]].last_update < 0) servers_[rank]->updated();
    servers_[rank] ? servers_[rank]->end_step() : end_step(rank);
    if (!servers_[rank]) clock_[rank] += between_steps_;
    if (++step_[rank] < steps_) begin_step(rank);
    if (const auto at = asked_.find(rank); at != asked_.end() && step_[rank] == steps_) {
      at->second.flushed = true;
      answer_all(rank, clock_[rank]);
    }
  }
}

void Simulator::start(int rank, ActionId id) {
  if (servers_[rank]) return handle(rank, id);
  const SimAction& a = actions(rank)[id];
  State& s = at(rank, id);
  if (s.begin != unknown) return;  // during a backward
  using Is = SimAction::Is;
  if (a.is != Is::compute || a.cost > 0) clock_[rank] += overhead_;
  const Nanoseconds now = s.begin = clock_[rank];
  if (hands_over(a)) return;
  if (a.ahead || a.answers) return;  // in the order of time: exchange()
  if (a.is == Is::send || a.is == Is::collective || a.is == Is::push) {
    enqueue(rank, id, now);
  } else if (a.is == Is::pull) {
    pull(rank, id);
  } else if (a.is == Is::recv) {
    if (s.end != unknown) s.end = std::max(now, s.end);
    if (s.end != unknown && second_copies_ && s.copies()) wait_until(rank, a, s.end += copying(rank, a), s.from);
  } else {
    const Nanoseconds time = cost(rank, id);
    Nanoseconds from = now;
    for (const SimInner& inner : plan_.programs[ranks_.program[rank]].inner[id]) {
      if (!runs(rank, actions(rank)[inner.reduction])) continue;
      from = std::max(from, now + Nanoseconds{std::llround(inner.share * static_cast<double>(time))});
      enqueue(rank, inner.reduction, from, inner.share * static_cast<double>(time));
    }
    s.end = now + time;
    if (jitter_ && a.cost > 0) jitter_->computed(rank, jitter_->mean(a.cost, rank));
  }
}

bool Simulator::wait(int rank, ActionId id) {
  if (servers_[rank]) return true;
  State& s = at(rank, id);
  if (s.begin == unknown) return true;  // it does not run
  if (s.end == unknown && !overlaps_) carry_on(rank);
  const SimAction& a = actions(rank)[id];
  const bool comes = s.end != unknown && a.is == SimAction::Is::recv;
  if ((jitter_ || !overlaps_) && comes && s.copies())
    s.end = (jitter_ ? jitter_->received(rank, id, clock_[rank], s.end) : std::max(clock_[rank], s.end)) +
            (overlaps_ ? 0 : copying(rank, a));
  if (jitter_ && a.is == SimAction::Is::collective && s.end > clock_[rank]) jitter_->waited(rank, id);
  if (s.end == unknown)
    waits_[rank] = id;
  else
    wait_until(rank, a, s.end, s.from);
  if (s.end == unknown && (hands_over(a) || a.ahead || a.answers)) later_.push({s.begin, rank, id});
  if (s.end != unknown && a.mixes > 0 && s.copies()) s.end = clock_[rank] += mixing(rank, a);
  return s.end != unknown;
}

/// Waits for a call: advances the clock to its end. Up to `from` the rank waits for other ranks, not for communication.
void Simulator::wait_until(int rank, const SimAction& a, Nanoseconds end, Nanoseconds from) {
  if (end <= clock_[rank]) return;
  // A message is identified by its sender's action.
  const int other = a.partner < 0 ? rank : grid_.neighbour(rank, a.along, a.offset);
  const SimAction& call = a.is == SimAction::Is::recv && other >= 0 ? actions(other)[a.partner] : a;
  const Nanoseconds still = end - std::max(clock_[rank], from);
  if (a.is != SimAction::Is::compute && call.axis >= 0 && still > 0)
    record_.stood_still(rank, call.axis, still, call.bytes);
  clock_[rank] = end;
}

/// Processes the rank's link up to the first collective whose other ranks have not arrived.
void Simulator::carry_on(int rank) {
  RankLink& link = links_[rank];
  while (!link.waits && link.head < link.queue.size()) {
    const ActionId id = link.queue[link.head++];
    if (!overlaps_ && clock_[rank] > at(rank, id).begin) {
      at(rank, id).begin = clock_[rank];
      if (jitter_) jitter_->begins(rank, id);
    }
    carry(rank, id);
  }
  if (link.head == link.queue.size()) {
    link.queue.clear();
    link.head = 0;
  }
}

void Simulator::finish(int rank, ActionId id, Nanoseconds when, Nanoseconds from) {
  State& s = at(rank, id);
  s.end = when;
  if (from > 0) s.from = from;
  if (waits_[rank] != id) return;
  waits_[rank] = -1;
  ready_.push_back(rank);
}

/// Adds an operation to its rank's link.
void Simulator::enqueue(int rank, ActionId id, Nanoseconds now, double computed) {
  at(rank, id).begin = now;
  if (jitter_) jitter_->begins(rank, id, computed);
  RankLink& link = links_[rank];
  const bool waits = link.waits || link.head < link.queue.size();
  if (overlaps_ ? waits : actions(rank)[id].is == SimAction::Is::collective)  // the rank does its part when it waits
    link.queue.push_back(id);
  else
    carry(rank, id);
}

/// Carries out the operation at the head of its rank's link.
void Simulator::carry(int rank, ActionId id) {
  RankLink& link = links_[rank];
  const SimAction& a = actions(rank)[id];
  const Nanoseconds begin = at(rank, id).begin, ready = std::max(begin, link.free);
  if (jitter_) jitter_->carries(rank, id, begin, link.free);
  if (a.is == SimAction::Is::collective) return meet(rank, a, begin);
  if (a.trades) return trade(rank, id, ready);
  const bool copies = !overlaps_ && a.is == SimAction::Is::send;  // the receiver copies
  link.free = ready + (copies ? 0 : took(rank, a));
  if (a.is == SimAction::Is::push) {
    deliver(rank, plan_.root_at(rank, a), a, {link.free, begin});
  } else {
    const int other = grid_.neighbour(rank, a.along, a.offset);
    if (other >= 0 && a.partner >= 0) {
      if (jitter_) jitter_->sent(rank, id, other, a.partner);
      arrive(other, a.partner, {link.free, begin});
    }
  }
  finish(rank, id, link.free);
}

/// The sender copies the message if the receiver has started its receive by now; else the receiver copies it.
void Simulator::hand_over(int rank, ActionId id) {
  const SimAction& a = actions(rank)[id];
  const int other = grid_.neighbour(rank, a.along, a.offset);
  const Nanoseconds begin = at(rank, id).begin;
  Nanoseconds end = begin;
  if (other >= 0 && a.partner >= 0) {
    State& there = at(other, a.partner);
    if (there.begin != unknown && there.end == unknown) {
      end += took(rank, a);
      there.copied = true;
    }
    arrive(other, a.partner, {end, begin});
  }
  finish(rank, id, end);
}

void Simulator::meet(int rank, const SimAction& a, Nanoseconds begin) {
  const RankLines& all = lines(a.axis);
  const int line = all.line_of[rank];
  Pending& meeting = pending_[a.axis][static_cast<std::size_t>(line) * each_[a.axis] + a.nth];
  meeting.latest = std::max({meeting.latest, begin, links_[rank].free});
  // The time of a link after the last rank has started the collective counts as communication, too.
  meeting.from = std::max(meeting.from, begin);
  links_[rank].waits = true;
  if (++meeting.come < all.size(line)) return;
  auto [come, latest, from] = std::exchange(meeting, {});
  const std::span members(all.members.data() + all.first[line], static_cast<std::size_t>(all.size(line)));
  const auto action = [&](int member) { return plan_.programs[ranks_.program[member]].collectives[a.axis][a.nth]; };
  if (jitter_) {
    std::vector<SimJitter::Member> begun;
    for (const int member : members)
      begun.push_back({member, action(member), std::max(at(member, action(member)).begin, links_[member].free)});
    const Nanoseconds expected = std::max(latest, jitter_->latest(a.axis, begun));
    from += expected - latest;
    latest = expected;
  }
  const Nanoseconds end = latest + took(rank, a);
  for (const int member : members) {
    links_[member].waits = false;
    links_[member].free = end;
    if (links_[member].head < links_[member].queue.size()) freed_.push_back(member);
    finish(member, action(member), end, from);
  }
}

void Simulator::arrive(int rank, ActionId id, Arrival arrival) {
  State& s = at(rank, id);
  if (s.end != unknown || !runs(rank, actions(rank)[id]))
    boxes_[{rank, -1, id}].come.push_back(arrival);  // for a later step
  else
    finish(rank, id, std::max(s.begin, arrival.when), arrival.from);
}

/// The receiver's time for a message, if ranks carry out communication while they wait.
Nanoseconds Simulator::copying(int rank, const SimAction& a) const {
  if (a.partner < 0) return 0;
  const int other = grid_.neighbour(rank, a.along, a.offset);
  return other < 0 ? 0 : took(other, actions(other)[a.partner]);
}

void Simulator::pull(int rank, ActionId id) {
  const SimAction& a = actions(rank)[id];
  Box& box = boxes_[{rank, a.nth, plan_.root_at(rank, a)}];
  if (box.come.empty()) return box.waiting.push_back(id);
  finish(rank, id, std::max(at(rank, id).begin, box.come.front().when), box.come.front().from);
  box.come.pop_front();
}

void Simulator::deliver(int from, int to, const SimAction& a, Arrival arrival) {
  if (servers_[to]) {
    servers_[to]->post({arrival.when, grid_.coordinate(from, a.along), a.nth, step_of(from)});
    return later_.push({std::max(clock_[to], arrival.when), to, -1});
  }
  Box& box = boxes_[{to, a.nth, from}];
  if (box.waiting.empty()) return box.come.push_back(arrival);
  const ActionId id = box.waiting.front();
  box.waiting.pop_front();
  finish(to, id, std::max(at(to, id).begin, arrival.when), arrival.from);
}

}  // namespace trireme
