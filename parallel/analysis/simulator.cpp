#include "parallel/analysis/simulator.h"

#include <algorithm>
#include <cmath>

#include "parallel/plan/peers.h"

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
  from_.push_back(m.from);
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

Simulator::Simulator(const SimPrograms& plan, const Places& places, const SimRanks& ranks, SimRecord& record)
    : plan_(plan),
      places_(places),
      ranks_(ranks),
      record_(record),
      steps_(plan.options.steps),
      overhead_(nanoseconds(plan.options.overhead)),
      between_steps_(nanoseconds(plan.options.between_steps)),
      overlaps_(plan.cluster.overlaps),
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
  for (int r = 0; r < std::ssize(links_); ++r) {
    ready_.push_back(r);
    settle();
  }
  while (!looks_.empty()) {
    const auto [now, rank] = looks_.top();
    looks_.pop();
    look(rank, now);
    settle();
  }
  for (int r = 0; r < std::ssize(links_); ++r)
    if (step_[r] < steps_) return {r, waits_[r]};
  return {-1, -1};
}

Nanoseconds Simulator::end() const { return *std::ranges::max_element(clock_); }

Nanoseconds Simulator::cost(int rank, ActionId id) const {
  const SimAction& a = actions(rank)[id];
  const auto key = plan_.key(ranks_.program[rank], step_of(rank), id);
  Nanoseconds time = a.cost == 0 ? 0 : plan_.cluster.compute(a.cost, ranks_.world[rank], key);
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
    if (!come.empty() && runs(rank, actions(rank)[id])) at(rank, id).end = come.front(), come.pop_front();
  }
}

void Simulator::end_step(int rank) {
  const auto& list = actions(rank);
  for (ActionId id = 0; id < std::ssize(list); ++id) {
    const Nanoseconds begin = at(rank, id).begin, end = at(rank, id).end;
    const SimAction& a = list[id];
    if (begin == unknown) continue;
    const Nanoseconds linked = a.axis >= 0 ? took(rank, a) : -1;
    record_.count(rank, a, a.is == SimAction::Is::compute ? end - begin : 0, linked);
    record_.span(rank, id, begin, end, a.ahead ? -1 : linked);  // ahead: it may end in a later step
  }
  record_.end_step(rank);
  if (told_[rank] != nothing) resumes_[rank] = std::exchange(told_[rank], nothing);
}

/// Steps of a rank, until it waits for what has no known end.
void Simulator::go_on(int rank) {
  Rank as{*this, rank};
  waits_[rank] = -1;
  while (step_[rank] < steps_) {
    if (!interpreters_[rank].run(as)) return;
    // Who passes on what others update with counts steps.
    if (servers_[rank] && plan_.programs[ranks_.program[rank]].last_update < 0) servers_[rank]->updated();
    servers_[rank] ? servers_[rank]->end_step() : end_step(rank);
    if (!servers_[rank]) clock_[rank] += between_steps_;
    if (++step_[rank] < steps_) begin_step(rank);
  }
}

/// All that follows from what is known.
void Simulator::settle() {
  while (!freed_.empty() || !ready_.empty()) {
    if (!freed_.empty()) {
      const int rank = freed_.back();
      freed_.pop_back();
      if (overlaps_ || waits_[rank] >= 0) carry_on(rank);
    } else {
      const int rank = ready_.back();
      ready_.pop_back();
      go_on(rank);
    }
  }
}

void Simulator::start(int rank, ActionId id) {
  if (servers_[rank]) return handle(rank, id);
  const SimAction& a = actions(rank)[id];
  State& s = at(rank, id);
  if (s.begin != unknown) return;  // in the midst of a backward
  using Is = SimAction::Is;
  if (a.is != Is::compute || a.cost > 0) clock_[rank] += overhead_;
  const Nanoseconds now = s.begin = clock_[rank];
  if (a.ahead) {
    exchange(rank, id);
  } else if (a.is == Is::send || a.is == Is::collective || a.is == Is::push) {
    enqueue(rank, id, now);
  } else if (a.is == Is::pull) {
    pull(rank, id);
  } else if (a.is == Is::recv) {
    if (s.end != unknown) s.end = std::max(now, s.end);
  } else {
    const Nanoseconds time = cost(rank, id);
    Nanoseconds from = now;
    for (const SimInner& inner : plan_.programs[ranks_.program[rank]].inner[id]) {
      if (!runs(rank, actions(rank)[inner.reduction])) continue;
      from = std::max(from, now + Nanoseconds{std::llround(inner.share * static_cast<double>(time))});
      enqueue(rank, inner.reduction, from);
    }
    s.end = now + time;
  }
}

bool Simulator::wait(int rank, ActionId id) {
  if (servers_[rank]) return true;
  State& s = at(rank, id);
  if (s.begin == unknown) return true;  // it does not run
  if (s.end == unknown && !overlaps_) carry_on(rank);
  const SimAction& a = actions(rank)[id];
  if (!overlaps_ && s.end != unknown && a.is == SimAction::Is::recv && !std::exchange(s.copied, true))
    s.end = std::max(clock_[rank], s.end) + copying(rank, a);
  if (s.end == unknown)
    waits_[rank] = id;
  else
    clock_[rank] = std::max(clock_[rank], s.end);
  return s.end != unknown;
}

/// What its link has still to do, up to the first collective whose other ranks have not come.
void Simulator::carry_on(int rank) {
  RankLink& link = links_[rank];
  while (!link.waits && link.head < link.queue.size()) {
    const ActionId id = link.queue[link.head++];
    if (!overlaps_) at(rank, id).begin = std::max(at(rank, id).begin, clock_[rank]);
    carry(rank, id);
  }
  if (link.head == link.queue.size()) link.queue.clear(), link.head = 0;
}

void Simulator::finish(int rank, ActionId id, Nanoseconds when) {
  at(rank, id).end = when;
  if (waits_[rank] != id) return;
  waits_[rank] = -1;
  ready_.push_back(rank);
}

/// It gets into its rank's link.
void Simulator::enqueue(int rank, ActionId id, Nanoseconds now) {
  at(rank, id).begin = now;
  RankLink& link = links_[rank];
  const bool waits = link.waits || link.head < link.queue.size();
  if (overlaps_ ? waits : actions(rank)[id].is == SimAction::Is::collective)  // of which it does its part when it waits
    link.queue.push_back(id);
  else
    carry(rank, id);
}

/// Of pairs that nobody else waits for: an even rank waits for the answer to its message of the step before (of the
/// first step: as if there had been one), an odd rank for nobody. An answer follows its message at once.
void Simulator::exchange(int rank, ActionId id) {
  const SimAction& a = actions(rank)[id];
  const int world = ranks_.world[rank], at_axis = plan_.grid.coordinate(world, a.along);
  const auto pairs = peers_at(*a.peer, at_axis, plan_.grid.axes()[a.along].size, plan_.options.step + step_[rank]);
  Nanoseconds took = 0;
  for (const RankPair& pair : pairs) took += a.took[places_.apart(world, plan_.rank_at(world, a, pair.to))];
  if (at_axis % 2 == 0) {
    const auto answer = answers_.try_emplace(rank, 2 * took).first;
    clock_[rank] = std::max(clock_[rank], answer->second);
    answer->second = std::max(clock_[rank], links_[rank].free) + 2 * took;
  }
  links_[rank].free = std::max(clock_[rank], links_[rank].free) + took;
  at(rank, id) = {clock_[rank], clock_[rank]};
}

/// At the head of its rank's link.
void Simulator::carry(int rank, ActionId id) {
  RankLink& link = links_[rank];
  const SimAction& a = actions(rank)[id];
  const Nanoseconds ready = std::max(at(rank, id).begin, link.free);
  if (a.is == SimAction::Is::collective) return meet(rank, a, ready);
  const bool copies = !overlaps_ && a.is == SimAction::Is::send;  // its receiver does
  link.free = ready + (copies ? 0 : took(rank, a));
  if (a.is == SimAction::Is::push) {
    deliver(rank, plan_.root_at(rank, a), a, link.free);
  } else {
    const int other = ranks_.folded && a.ring ? rank : grid_.neighbour(rank, a.along, a.offset, a.ring);
    if (other >= 0 && a.partner >= 0) arrive(other, a.partner, link.free);
  }
  finish(rank, id, link.free);
}

void Simulator::meet(int rank, const SimAction& a, Nanoseconds ready) {
  const RankLines& all = lines(a.axis);
  const int line = all.line_of[rank];
  Pending& meeting = pending_[a.axis][static_cast<std::size_t>(line) * each_[a.axis] + a.nth];
  meeting.latest = std::max(meeting.latest, ready);
  links_[rank].waits = true;
  if (++meeting.come < all.size(line)) return;
  const Nanoseconds end = std::exchange(meeting, {}).latest + took(rank, a);
  for (int m = all.first[line]; m < all.first[line + 1]; ++m) {
    const int member = all.members[m];
    links_[member].waits = false, links_[member].free = end;
    if (links_[member].head < links_[member].queue.size()) freed_.push_back(member);
    finish(member, plan_.programs[ranks_.program[member]].collectives[a.axis][a.nth], end);
  }
}

void Simulator::arrive(int rank, ActionId id, Nanoseconds when) {
  State& s = at(rank, id);
  if (s.end != unknown || !runs(rank, actions(rank)[id]))
    boxes_[{rank, -1, id}].come.push_back(when);  // for a later step
  else
    finish(rank, id, std::max(s.begin, when));
}

/// What a message takes of its receiver, where ranks carry out communication while they wait.
Nanoseconds Simulator::copying(int rank, const SimAction& a) const {
  if (a.partner < 0) return 0;
  const int other = ranks_.folded && a.ring ? rank : grid_.neighbour(rank, a.along, a.offset, a.ring);
  return other < 0 ? 0 : took(other, actions(other)[a.partner]);
}

void Simulator::pull(int rank, ActionId id) {
  const SimAction& a = actions(rank)[id];
  Box& box = boxes_[{rank, a.nth, plan_.root_at(rank, a)}];
  if (box.come.empty()) return box.waiting.push_back(id);
  finish(rank, id, std::max(at(rank, id).begin, box.come.front()));
  box.come.pop_front();
}

void Simulator::deliver(int from, int to, const SimAction& a, Nanoseconds when) {
  if (servers_[to]) {
    servers_[to]->post({when, from, grid_.coordinate(from, a.along), a.nth, step_of(from)});
    return looks_.push({std::max(clock_[to], when), to});
  }
  Box& box = boxes_[{to, a.nth, from}];
  if (box.waiting.empty()) return box.come.push_back(when);
  const ActionId id = box.waiting.front();
  box.waiting.pop_front();
  finish(to, id, std::max(at(to, id).begin, when));
}

/// A server that has nothing to do takes the next message, and does what follows from it.
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
  if (next) looks_.push({std::max(clock_[rank], *next), rank});
  return phase;
}

/// What a server sends; nobody waits for it.
void Simulator::answer(int rank, ActionId id, int to) {
  const SimAction& a = actions(rank)[id];
  const Nanoseconds now = clock_[rank], took = a.took[places_.apart(rank, to)];
  const Nanoseconds end = links_[rank].free = std::max(now, links_[rank].free) + took;
  record_.count(rank, a, 0, took), record_.span(rank, id, now, end, took);
  if (a.is_clock) told_[to] = std::min(told_[to], servers_[rank]->updates());
  deliver(rank, to, a, end);
}

/// An action of a server.
void Simulator::handle(int rank, ActionId id) {
  const SimAction& a = actions(rank)[id];
  if (a.is == SimAction::Is::push) {
    if (a.offset >= 0) return answer(rank, id, plan_.root_at(rank, a));
    if (a.peer->senders_of.empty()) {
      for (const int sender : servers_[rank]->senders()) answer(rank, id, sender);
    } else {
      for (const int to : senders_to(plan_.plan, a.peer->senders_of, grid_.coordinate(rank, a.along)))
        answer(rank, id, plan_.rank_at(rank, a, to));
    }
    return;
  }
  const Nanoseconds now = clock_[rank];
  clock_[rank] += cost(rank, id);
  record_.count(rank, a, clock_[rank] - now, 0), record_.span(rank, id, now, clock_[rank], -1);
  if (id == plan_.programs[ranks_.program[rank]].last_update) servers_[rank]->updated();
}

}  // namespace trireme
