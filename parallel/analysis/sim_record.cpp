#include "parallel/analysis/sim_record.h"

#include <algorithm>
#include <numeric>

#include "parallel/plan/liveness.h"

namespace trireme {
namespace {

/// t divided among `ranks`, exact if the quotient is.
double seconds(Nanoseconds t, Nanoseconds ranks = 1) {
  return static_cast<double>(t) / static_cast<double>(ranks) / 1e9;
}

}  // namespace

SimRanks::SimRanks(const SimPrograms& plan, bool is_folded)
    : folded(is_folded), program(plan.program_of), world(plan.program_of.size()) {
  std::iota(world.begin(), world.end(), 0);
  if (!folded) return;
  world = plan.first_rank;
  program.resize(world.size());
  std::iota(program.begin(), program.end(), 0);
}

SimRecord::SimRecord(const SimPrograms& plan, const Places& places, const SimRanks& ranks)
    : plan_(plan), places_(places), ranks_(ranks), totals_(plan.programs.size()), row_(ranks.world.size(), -1) {
  for (Totals& t : totals_) {
    for (auto* times : {&t.link, &t.still}) times->resize(plan.axes.size());
    for (auto* bytes : {&t.bytes, &t.still_bytes}) bytes->resize(plan.axes.size());
  }
  for (std::size_t r = 0; r < totals_.size(); ++r) {
    totals_[r].called.resize(plan.programs[r].purposes.size());
    totals_[r].calls.resize(plan.programs[r].purposes.size());
  }
  const bool all = ranks.folded || std::ssize(row_) <= plan.options.rows;
  for (int rank = 0; rank < std::ssize(row_); ++rank) {
    ++totals_[ranks.program[rank]].ranks;
    if (!all && plan.first_rank[ranks.program[rank]] != rank) continue;
    row_[rank] = static_cast<int>(result_.ranks.size());
    result_.ranks.push_back(ranks.world[rank]);
    result_.timeline.programs.push_back(ranks.program[rank]);
  }
  step_.resize(result_.ranks.size());
  for (auto& stream : result_.started) stream.resize(result_.ranks.size());
  result_.folded = ranks.folded;
}

void SimRecord::count(int rank, const SimAction& a, Nanoseconds computed, Nanoseconds linked) {
  Totals& t = totals_[ranks_.program[rank]];
  t.busy += computed;
  if (a.axis >= 0) {
    t.link[a.axis] += linked;
    t.bytes[a.axis] += a.bytes;
    t.called[a.purpose] += linked;
    t.calls[a.purpose] += a.count;
  }
  for (const SimComm& c : a.comms) {
    const Nanoseconds took = c.took[places_.between(ranks_.world[rank], c.axis)];
    t.link[c.axis] += took;
    t.called[c.purpose] += took;
    t.calls[c.purpose] += c.calls;
    t.busy -= took;
    t.bytes[c.axis] += c.bytes;
    if (took > 0) {
      t.still[c.axis] += took;
      t.still_bytes[c.axis] += c.bytes;
    }
  }
}

void SimRecord::stood_still(int rank, int axis, Nanoseconds time, Index bytes) {
  Totals& t = totals_[ranks_.program[rank]];
  t.still[axis] += time;
  t.still_bytes[axis] += bytes;
}

void SimRecord::span(int rank, ActionId id, Nanoseconds started, Nanoseconds ended, Nanoseconds linked) {
  const int row = row_[rank];
  if (row < 0) return;
  result_.timeline.spans.push_back({row, id, seconds(linked < 0 ? started : ended - linked), seconds(ended)});
  step_[row].push_back({started, id});
}

void SimRecord::end_step(int rank) {
  const int row = row_[rank];
  if (row < 0) return;
  std::ranges::stable_sort(step_[row], {}, &std::pair<Nanoseconds, ActionId>::first);
  const auto& list = plan_.plan.programs[ranks_.program[rank]].actions;
  for (const auto& [started, id] : step_[row])
    result_.started[static_cast<std::size_t>(list[id].stream)][row].push_back(id);
  step_[row].clear();
}

Simulation SimRecord::simulation(Nanoseconds end) {
  Nanoseconds all_busy = 0;
  for (int rank = 0; rank < std::ssize(row_); ++rank) end_step(rank);  // for servers
  for (std::size_t r = 0; r < totals_.size(); ++r) {
    const Totals& t = totals_[r];
    all_busy += t.busy;
    result_.busy.push_back(seconds(t.busy, t.ranks));
    result_.in_flight.push_back(peak_in_flight(plan_.plan.programs[r]));
    auto &traffic = result_.traffic.emplace_back(), &exposed = result_.exposed.emplace_back();
    for (std::size_t a = 0; a < plan_.axes.size(); ++a) {
      const AxisTraffic more{plan_.axes[a], seconds(t.link[a], t.ranks), t.bytes[a] / t.ranks};
      const auto at = std::ranges::find(traffic, more.axis, &AxisTraffic::axis);
      if (at == traffic.end())
        traffic.push_back(more);
      else  // some ranks of the line
      {
        at->seconds += more.seconds;
        at->bytes += more.bytes;
      }
      if (t.still[a] == 0) continue;
      const auto still = std::ranges::find(exposed, more.axis, &AxisTraffic::axis);
      AxisTraffic& of = still == exposed.end() ? exposed.emplace_back(AxisTraffic{more.axis}) : *still;
      of.seconds += seconds(t.still[a], t.ranks);
      of.bytes += t.still_bytes[a] / t.ranks;
    }
  }
  for (std::size_t r = 0; r < totals_.size(); ++r) {
    auto& calls = result_.calls.emplace_back(plan_.programs[r].purposes);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      calls[i].seconds = seconds(totals_[r].called[i], totals_[r].ranks);
      calls[i].calls = totals_[r].calls[i] / totals_[r].ranks;
    }
    std::ranges::stable_sort(calls, std::greater(), &CallTime::seconds);
  }
  std::ranges::stable_sort(result_.timeline.spans, {}, &Span::rank);
  result_.makespan = seconds(end);
  const Nanoseconds ranks = std::ssize(row_);
  result_.bubble = all_busy > 0 ? static_cast<double>(end * ranks - all_busy) / static_cast<double>(all_busy) : 0;
  return std::move(result_);
}

}  // namespace trireme
