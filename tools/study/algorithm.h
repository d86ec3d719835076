// SearchAlgorithm: suggests the next trial from the observed trials (Optuna's sampler and pruner in one). It has no
// other state: from the same trials, every process derives the same suggestion.
#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tools/study/question.h"

namespace trireme {

/// waiting: for a worker; paused: may continue to more epochs; stopped: worse than other trials, never continued.
enum class TrialStatus : std::uint8_t { waiting, running, paused, finished, stopped, failed };
const char* to_string(TrialStatus);

/// A trial as an algorithm sees it.
struct TrialState {
  int id = 0;  ///< from 1, without gaps
  Point point = {};
  int parent = 0;               ///< pbt: the trial whose weights it started with; 0: none
  std::int64_t from_epoch = 0;  ///< epochs of the parent's checkpoint
  std::int64_t target = 0;      ///< epochs in all at which it pauses or finishes
  TrialStatus status = TrialStatus::waiting;
  /// (epoch, score) in order. The score is the objective, negated if lower is better.
  std::vector<std::pair<std::int64_t, double>> scores = {};

  bool is_open() const { return status == TrialStatus::waiting || status == TrialStatus::running; }
  double last() const { return scores.empty() ? worst : scores.back().second; }
  /// Score of the last evaluation up to an epoch; `worst` without one.
  double at(std::int64_t epoch) const;
  bool has(std::int64_t epoch) const { return !scores.empty() && scores.back().first >= epoch; }
  /// Score of failed trials and trials without a report: lower than every other score.
  static constexpr double worst = -std::numeric_limits<double>::infinity();
};

struct Suggestion {
  /// start: a new trial; go_on: a paused trial, to more epochs; wait: for running trials; done: nothing is left.
  enum class Kind : std::uint8_t { start, go_on, wait, done } kind = Kind::done;
  int trial = 0;     ///< go_on
  Point point = {};  ///< start
  int parent = 0;    ///< start: the trial from whose checkpoint after `from_epoch` it starts; 0: none
  std::int64_t from_epoch = 0, target = 0;
  int replaces = 0;  ///< start: a paused trial that it replaces; 0: none
};

class SearchAlgorithm {
 public:
  SearchAlgorithm(TuneOptions options, Space space) : options_(std::move(options)), space_(std::move(space)) {}
  virtual ~SearchAlgorithm() = default;
  SearchAlgorithm(const SearchAlgorithm&) = delete;
  SearchAlgorithm& operator=(const SearchAlgorithm&) = delete;
  /// Observes a trial: first all in the order of ids, then again whenever one changes.
  void observe(TrialState);
  virtual Suggestion suggest() const = 0;
  const TuneOptions& options() const { return options_; }
  const Space& space() const { return space_; }
  const std::vector<TrialState>& trials() const { return trials_; }

 protected:
  bool has_open() const;
  /// Random generator of trial `number` (from 1), always with the same seed.
  std::mt19937_64 dice(int number) const;
  Point random_point(int number) const;

 private:
  TuneOptions options_;
  Space space_;
  std::vector<TrialState> trials_;
};

/// Uniform in [0, 1), with 53 bits.
inline double uniform(std::mt19937_64& dice) { return static_cast<double>(dice() >> 11) * 0x1p-53; }

/// Algorithms that train every trial to its end and only choose points.
class PointSearch : public SearchAlgorithm {
 public:
  using SearchAlgorithm::SearchAlgorithm;
  /// Point of trial `number`, from 1.
  virtual Point next(int number) const = 0;
  Suggestion suggest() const override;
};

/// The algorithm of options.algorithm. Throws OptionError for an unknown name.
std::unique_ptr<SearchAlgorithm> make_algorithm(const TuneOptions&, const Space&);
/// The median rule (Golovin et al., Google Vizier, KDD 2017, 3.2.1): whether a trial stops after its last epoch. It
/// stops if its best score is below the median, over finished trials, of their mean score up to this epoch. The rule
/// needs `options.startup` finished trials.
bool median_stops(const TuneOptions&, const std::vector<TrialState>&, const TrialState&);

}  // namespace trireme
