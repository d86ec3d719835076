#include "tools/study/algorithm.h"

#include <algorithm>
#include <cmath>

#include "kernels/core/random.h"
#include "kernels/core/suggest.h"
#include "tools/study/asha.h"
#include "tools/study/grid.h"
#include "tools/study/pbt.h"
#include "tools/study/random_search.h"
#include "tools/study/sobol.h"
#include "tools/study/tpe.h"

namespace trireme {

const char* to_string(TrialStatus status) {
  constexpr const char* names[] = {"waiting", "running", "paused", "finished", "stopped", "failed"};
  return names[static_cast<std::size_t>(status)];
}

double TrialState::at(std::int64_t epoch) const {
  double score = worst;
  for (const auto& [at, value] : scores)
    if (at <= epoch) score = value;
  return score;
}

void SearchAlgorithm::observe(TrialState trial) {
  const auto at = static_cast<std::size_t>(trial.id - 1);
  check(at <= trials_.size(), ErrorKind::internal, "study", "trial {} is observed before {}", trial.id,
        trials_.size() + 1);
  if (at == trials_.size()) trials_.emplace_back();
  trials_[at] = std::move(trial);
}

bool SearchAlgorithm::has_open() const { return std::ranges::any_of(trials_, &TrialState::is_open); }

std::mt19937_64 SearchAlgorithm::dice(int number) const {
  return std::mt19937_64(mix(static_cast<std::uint64_t>(options_.seed), static_cast<std::uint64_t>(number)));
}

Point SearchAlgorithm::random_point(int number) const {
  std::mt19937_64 random = dice(number);
  std::vector<double> places(space_.size());
  for (double& place : places) place = uniform(random);
  return space_.at(places);
}

Suggestion PointSearch::suggest() const {
  const int number = static_cast<int>(trials().size()) + 1;
  if (number <= options().trials)
    return {.kind = Suggestion::Kind::start, .point = next(number), .target = options().epochs};
  return {.kind = has_open() ? Suggestion::Kind::wait : Suggestion::Kind::done};
}

namespace {

/// A scaling study: every cell with every seed, in the order of order_of().
class StudyOrder : public PointSearch {
 public:
  using PointSearch::PointSearch;
  Point next(int number) const override {
    const auto [cell, seed] = order_of(space()[0].values.size(), static_cast<int>(space()[1].high - space()[1].low) + 1)
                                  .at(static_cast<std::size_t>(number - 1));
    return {static_cast<double>(cell), space()[1].low + seed};
  }
};

}  // namespace

std::unique_ptr<SearchAlgorithm> make_algorithm(const TuneOptions& options, const Space& space) {
  const std::string& name = options.algorithm;
  if (name == "random") return std::make_unique<RandomSearch>(options, space);
  if (name == "sobol") return std::make_unique<SobolSearch>(options, space);
  if (name == "grid") return std::make_unique<GridSearch>(options, space);
  if (name == "tpe") return std::make_unique<Tpe>(options, space);
  if (name == "asha") return std::make_unique<Asha>(options, space);
  if (name == "pbt") return std::make_unique<Pbt>(options, space);
  if (name == "study") return std::make_unique<StudyOrder>(options, space);
  throw OptionError("tune.algorithm: " + unknown_name(name, {"random", "sobol", "grid", "tpe", "asha", "pbt"}));
}

bool median_stops(const TuneOptions& options, const std::vector<TrialState>& trials, const TrialState& trial) {
  if (trial.scores.empty()) return false;
  const std::int64_t epoch = trial.scores.back().first;
  if (epoch < options.min_epochs || epoch >= options.epochs) return false;
  std::vector<double> means;
  for (const TrialState& other : trials) {
    if (other.id == trial.id || other.status != TrialStatus::finished) continue;
    double sum = 0;
    int count = 0;
    for (const auto& [at, score] : other.scores)
      if (at <= epoch) {
        sum += score;
        ++count;
      }
    if (count > 0) means.push_back(sum / count);
  }
  if (std::ssize(means) < options.startup) return false;
  std::ranges::sort(means);
  const std::size_t half = means.size() / 2;
  const double median = means.size() % 2 == 1 ? means[half] : (means[half - 1] + means[half]) / 2;
  double best = TrialState::worst;
  for (const auto& [at, score] : trial.scores) best = std::max(best, score);
  return best < median;
}

}  // namespace trireme
