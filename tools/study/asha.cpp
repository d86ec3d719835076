#include "tools/study/asha.h"

#include <algorithm>

namespace trireme {

std::vector<std::int64_t> asha_rungs(const TuneOptions& options) {
  std::vector<std::int64_t> rungs;
  for (std::int64_t left = options.epochs;;) {
    rungs.insert(rungs.begin(), left);
    left /= options.eta;
    if (left < options.min_epochs || left < 1) return rungs;
  }
}

Suggestion Asha::suggest() const {
  const std::vector<std::int64_t> rungs = asha_rungs(options());
  for (std::size_t k = rungs.size() - 1; k-- > 0;) {
    std::vector<const TrialState*> done;  // trials that have finished rung k, or failed in it
    for (const TrialState& t : trials()) {
      const bool failed_here = t.status == TrialStatus::failed && t.target == rungs[k];
      if (t.has(rungs[k]) || failed_here) done.push_back(&t);
    }
    std::ranges::stable_sort(done, std::greater(), [&](const TrialState* t) {
      return t->status == TrialStatus::failed && t->target == rungs[k] ? TrialState::worst : t->at(rungs[k]);
    });
    const std::size_t top = done.size() / static_cast<std::size_t>(options().eta);
    for (std::size_t i = 0; i < top; ++i)
      if (done[i]->status == TrialStatus::paused && done[i]->target == rungs[k])
        return {.kind = Suggestion::Kind::go_on, .trial = done[i]->id, .target = rungs[k + 1]};
  }
  const int number = static_cast<int>(trials().size()) + 1;
  if (number <= options().trials)
    return {.kind = Suggestion::Kind::start, .point = random_point(number), .target = rungs[0]};
  return {.kind = has_open() ? Suggestion::Kind::wait : Suggestion::Kind::done};
}

}  // namespace trireme
