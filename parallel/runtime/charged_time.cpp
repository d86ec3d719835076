#include "parallel/runtime/charged_time.h"

#include <algorithm>
#include <cmath>

#include "parallel/plan/action_kind.h"

namespace trireme {

ChargedTime::ChargedTime(const Plan& plan, const Program& program, World& world)
    : plan_(plan), program_(program), clock_(world.clock()), rank_(world.rank()) {
  if (clock_) {
    dependencies_ = dependencies(program, plan.parts);
    spans_.resize(program.actions.size());
  }
}

void ChargedTime::begin_segment(ActionId first, const Segment& parts) {
  if (!clock_) return;
  Nanoseconds now = clock_->now();
  waited_ = 0;
  passed_ = now;
  int left = parts.end - parts.first;  // the next passes of the list are those of the segment
  for (ActionId id = first; left > 0; ++id) {
    if (!is_pass(program_.actions[static_cast<std::size_t>(id)])) continue;
    --left;
    spans_[static_cast<std::size_t>(id)] = {now, now + time_of(id)};
    now = spans_[static_cast<std::size_t>(id)].end;
  }
}

void ChargedTime::start(ActionId reduction) {
  if (!clock_) return;
  Nanoseconds latest = 0;
  for (const Dependency& d : dependencies_[static_cast<std::size_t>(reduction)]) {
    const auto [begin, end] = spans_[static_cast<std::size_t>(d.on)];
    if (d.share > 0) latest = std::max(latest, begin + Nanoseconds{std::llround(d.share * double(end - begin))});
  }
  advance(latest);
}

void ChargedTime::advance(Nanoseconds planned) {
  waited_ += clock_->now() - passed_;
  clock_->advance_to(planned + waited_);
  passed_ = clock_->now();
}

/// Uses the same key as simulate().
Nanoseconds ChargedTime::time_of(ActionId id) const {
  const Nanoseconds cost = nanoseconds(seconds_of(plan_, program_.actions[static_cast<std::size_t>(id)]));
  const auto key = static_cast<std::uint64_t>(step_ * std::ssize(program_.actions) + id);
  return cost == 0 ? 0 : clock_->cluster().compute(cost, rank_, key);
}

}  // namespace trireme
