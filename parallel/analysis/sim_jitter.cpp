#include "parallel/analysis/sim_jitter.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trireme {
namespace {

double normal(double z) { return std::erfc(-z / std::numbers::sqrt2) / 2; }

struct Larger {
  double mean, variance;
  double first;  // probability that the first time is the larger one
};
/// The larger of two independent times: Clark 1961, (2) to (4).
Larger larger_of(double a, double var_a, double b, double var_b) {
  const double apart = std::sqrt(var_a + var_b), d = a - b;  // all values below are relative to b
  if (apart <= 0) return {std::max(a, b), 0, d >= 0 ? 1.0 : 0.0};
  const double z = d / apart, p = normal(z), q = normal(-z);
  const double density = std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
  const double mean = d * p + apart * density;
  const double square = (d * d + var_a) * p + var_b * q + d * apart * density;
  return {b + mean, std::max(0.0, square - mean * mean), p};
}

}  // namespace

std::pair<double, Scatter> largest_of(const Scatter& one, double count) {
  if (one.variance <= 0 || one.mean <= 0 || count <= 1) return {0, one};
  const double shape = std::sqrt(std::log1p(one.variance / (one.mean * one.mean)));
  const double median = one.mean * std::exp(-shape * shape / 2);
  // Mean of x = median exp(shape z) over the density P phi(z) Phi(z)^(P - 1) of the largest z, by the trapezoidal rule;
  // the integrand vanishes at both ends.
  const double from = -9, to = std::sqrt(2 * std::log(count)) + 9 + 2 * shape, step = (to - from) / 400;
  double more = 0, squares = 0;  // about the mean of one
  for (double z = from; z < to; z += step) {
    const double x = median * std::exp(shape * z) - one.mean;
    const double density =
        std::exp(-z * z / 2 + (count - 1) * std::log1p(-normal(-z))) / std::sqrt(2 * std::numbers::pi);
    more += count * density * step * x;
    squares += count * density * step * x * x;
  }
  return {more, {one.mean, std::max(0.0, squares - more * more)}};
}

SimJitter::SimJitter(const SimPrograms& plan, const Places& places, const SimRanks& ranks)
    : plan_(plan),
      places_(places),
      ranks_(ranks),
      calm_([&] {
        Cluster c = plan.cluster;
        c.jitter = 0;
        return c;
      }()),
      factor_(std::exp(plan.cluster.jitter * plan.cluster.jitter / 2)),
      square_(std::expm1(plan.cluster.jitter * plan.cluster.jitter)),
      now_(ranks.world.size(), Scatters(plan.axes.size() + 1)),
      link_(now_) {
  for (std::size_t a = 0; a < plan.axes.size(); ++a) {
    const auto names = names_in(plan.axes[a]);
    const bool all = places.lines(static_cast<int>(a)).lines() == 1;
    auto& within = within_.emplace_back();
    for (std::size_t b = 0; b < plan.axes.size(); ++b) {
      const bool named = std::ranges::all_of(names_in(plan.axes[b]), [&](const std::string& name) {
        return std::ranges::find(names, name) != names.end();
      });
      within.push_back(all || a == b || (named && plan.members[a].empty()) ? 1 : 0);
    }
    within.push_back(all ? 1 : 0);
  }
}

bool SimJitter::suits(const SimPrograms& plan) {
  for (const SimProgram& program : plan.programs)
    for (const SimAction& a : program.actions)
      if (a.ahead || a.trades || a.is == SimAction::Is::push || a.is == SimAction::Is::pull) return false;
  return true;
}

Nanoseconds SimJitter::mean(Nanoseconds cost, int rank) const {
  return calm_.compute(std::llround(static_cast<double>(cost) * factor_), ranks_.world[rank], 0);
}

void SimJitter::computed(int rank, Nanoseconds mean) {
  const auto time = static_cast<double>(mean);
  for (Scatter& s : now_[rank]) {
    s.mean += time;
    s.variance += time * time * square_;
  }
}

void SimJitter::begins(int rank, ActionId id, double computed) {
  Scatters& all = begun_[{rank, id}] = now_[rank];
  for (Scatter& s : all) {
    s.mean += computed;
    s.variance += computed * computed * square_;
  }
}

void SimJitter::carries(int rank, ActionId id, Nanoseconds begin, Nanoseconds free) {
  Scatters& own = begun_.at({rank, id});
  const SimAction& a = plan_.programs[ranks_.program[rank]].actions[id];
  double latest = static_cast<double>(begin);
  if (a.is == SimAction::Is::collective) latest += largest_of(own[a.axis], ranks_along(a.axis, rank)).first;
  if (static_cast<double>(free) > latest) own = link_[rank];
  link_[rank] = own;
}

int SimJitter::ranks_along(int axis, int rank) const {
  const RankLines& lines = places_.lines(axis);
  return lines.size(lines.line_of[ranks_.world[rank]]);
}

Nanoseconds SimJitter::latest(int axis, std::span<const Member> members) {
  const double each =
      static_cast<double>(ranks_along(axis, members.front().rank)) / static_cast<double>(members.size());
  Larger all{0, 0, 0};
  for (const Member& m : members) {
    const auto [more, scatter] = largest_of(begun_.at({m.rank, m.id})[axis], each);
    const double mean = static_cast<double>(m.ready) + more;
    all = &m == &members.front() ? Larger{mean, scatter.variance, 1}
                                 : larger_of(all.mean, all.variance, mean, scatter.variance);
  }
  for (const Member& m : members) {
    Scatters& after = ended_[{m.rank, m.id}] = begun_.at({m.rank, m.id});
    const double before = after[axis].variance;
    for (std::size_t other = 0; other < after.size(); ++other) {
      Scatter& s = after[other];
      s = within_[axis][other] ? Scatter{} : Scatter{s.mean, std::max(0.0, s.variance - before) + all.variance};
    }
    link_[m.rank] = after;
  }
  return std::llround(all.mean);
}

void SimJitter::waited(int rank, ActionId collective) {
  if (const auto at = ended_.find({rank, collective}); at != ended_.end()) now_[rank] = at->second;
}

void SimJitter::sent(int from, ActionId send, int to, ActionId recv) {
  const int axis = plan_.programs[ranks_.program[from]].actions[send].axis;
  on_its_way_[{to, recv}].push_back({axis, begun_.at({from, send})});
}

Nanoseconds SimJitter::received(int rank, ActionId recv, Nanoseconds now, Nanoseconds arrival) {
  auto& queue = on_its_way_[{rank, recv}];
  if (queue.empty()) return std::max(now, arrival);
  const auto [axis, as] = std::move(queue.front());
  queue.pop_front();
  Scatters& own = now_[rank];
  const double var_own = own[axis].variance, var_as = as[axis].variance;
  const Larger both = larger_of(static_cast<double>(now), var_own, static_cast<double>(arrival), var_as);
  const double p = both.first, more = both.variance - (p * var_own + (1 - p) * var_as);
  for (std::size_t i = 0; i < own.size(); ++i)
    own[i] = {p * own[i].mean + (1 - p) * as[i].mean,
              std::max(0.0, p * own[i].variance + (1 - p) * as[i].variance + more)};
  return std::llround(both.mean);
}

Nanoseconds SimJitter::end(std::span<const Nanoseconds> clocks) const {
  std::vector<double> ranks(clocks.size());  // number of ranks of each program
  for (const int program : plan_.program_of) ranks[static_cast<std::size_t>(program)] += 1;
  Larger all{0, 0, 0};
  for (std::size_t r = 0; r < clocks.size(); ++r) {
    const auto [more, scatter] = largest_of(std::ranges::min(now_[r], {}, &Scatter::variance), ranks[r]);
    const double mean = static_cast<double>(clocks[r]) + more;
    all = r == 0 ? Larger{mean, scatter.variance, 1} : larger_of(all.mean, all.variance, mean, scatter.variance);
  }
  return std::llround(all.mean);
}

}  // namespace trireme
