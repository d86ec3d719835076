#include "tools/study/pbt.h"

#include <algorithm>
#include <cmath>

namespace trireme {

Point Pbt::explore(const Point& from, int number) const {
  std::mt19937_64 random = dice(number);
  Point point(space().size(), std::numeric_limits<double>::quiet_NaN());
  for (std::size_t i = 0; i < space().size(); ++i) {
    const Parameter& p = space()[i];
    const double anew = uniform(random), place = uniform(random), side = uniform(random);
    if (!space().applies(point, i)) continue;
    if (std::isnan(from[i]) || anew < 0.25) {
      point[i] = p.at(place);
      continue;
    }
    point[i] = from[i];
    if (p.kind == Parameter::Kind::choice) continue;
    point[i] = p.clamped(from[i] * (side < 0.5 ? 0.8 : 1.2));
    if (p.is_whole() && point[i] == from[i]) point[i] = p.clamped(from[i] + (side < 0.5 ? -1 : 1));
    if (!p.is_whole()) point[i] = p.at(p.place(point[i]));  // to six digits
  }
  return point;
}

/// Continues a paused trial: by itself, or replaced by a new one.
Suggestion Pbt::follow(const TrialState& trial) const {
  const std::int64_t epoch = trial.target, target = std::min(options().epochs, epoch + options().min_epochs);
  std::vector<const TrialState*> peers;
  for (const TrialState& t : trials())
    if (t.has(epoch) && t.status != TrialStatus::failed && t.from_epoch < epoch) peers.push_back(&t);
  std::ranges::stable_sort(peers, std::greater(), [&](const TrialState* t) { return t->at(epoch); });
  const std::size_t count = peers.size(),
                    few = std::max<std::size_t>(
                        1, static_cast<std::size_t>(static_cast<double>(count) * options().quantile));
  const auto place = static_cast<std::size_t>(std::ranges::find(peers, trial.id, &TrialState::id) - peers.begin());
  if (count < 2 || place < count - few) return {.kind = Suggestion::Kind::go_on, .trial = trial.id, .target = target};
  const int number = static_cast<int>(trials().size()) + 1;
  std::mt19937_64 random = dice(-number);
  const TrialState& better = *peers[random() % few];
  return {.kind = Suggestion::Kind::start,
          .point = explore(better.point, number),
          .parent = better.id,
          .from_epoch = epoch,
          .target = target,
          .replaces = trial.id};
}

Suggestion Pbt::suggest() const {
  const auto first = std::ranges::count(trials(), 0, &TrialState::parent);
  const int number = static_cast<int>(trials().size()) + 1;
  const std::int64_t interval = std::min(options().epochs, options().min_epochs);
  if (first < options().trials)
    return {.kind = Suggestion::Kind::start, .point = random_point(number), .target = interval};
  const TrialState* behind = nullptr;  // the paused trial with the fewest epochs
  for (const TrialState& t : trials())
    if (t.status == TrialStatus::paused && (!behind || t.target < behind->target)) behind = &t;
  if (behind) return follow(*behind);
  return {.kind = has_open() ? Suggestion::Kind::wait : Suggestion::Kind::done};
}

}  // namespace trireme
