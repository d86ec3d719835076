// SearchAlgorithm: what a search tries next, by what it has observed of its trials (Optuna's sampler and pruner in
// one). It keeps nothing else: whoever observes the same trials suggests the same, in whatever process.
#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tools/tune/tune_file.h"

namespace trireme {

/// waiting: for a worker; paused: it may go on to more epochs; stopped: it was worse than others, and goes on no more.
enum class TrialStatus : std::uint8_t { waiting, running, paused, finished, stopped, failed };
const char* to_string(TrialStatus);

/// A trial as a search sees it.
struct TrialState {
  int id = 0;  ///< from 1, without gaps
  Point point = {};
  int parent = 0;               ///< pbt: the trial whose weights it began with; 0: none
  std::int64_t from_epoch = 0;  ///< epochs of its parent's
  std::int64_t target = 0;      ///< epochs in all, to which it goes for now
  TrialStatus status = TrialStatus::waiting;
  /// By epoch, in order: the objective, its sign turned where the lower is better.
  std::vector<std::pair<std::int64_t, double>> scores = {};

  bool is_open() const { return status == TrialStatus::waiting || status == TrialStatus::running; }
  double last() const { return scores.empty() ? worst : scores.back().second; }
  /// Of the last evaluation up to an epoch; `worst`: there was none.
  double at(std::int64_t epoch) const;
  bool has(std::int64_t epoch) const { return !scores.empty() && scores.back().first >= epoch; }
  /// Of trials that failed, or have reported nothing: below every score.
  static constexpr double worst = -std::numeric_limits<double>::infinity();
};

struct Suggestion {
  /// start: a new trial; go_on: a paused one, to more epochs; wait: for trials that are open; done: nothing is left.
  enum class Kind : std::uint8_t { start, go_on, wait, done } kind = Kind::done;
  int trial = 0;     ///< go_on
  Point point = {};  ///< start
  int parent = 0;    ///< start: the trial whose checkpoint behind `from_epoch` it begins with; 0: none
  std::int64_t from_epoch = 0, target = 0;
  int replaces = 0;  ///< start: a paused trial that ends with it; 0: none
};

class SearchAlgorithm {
 public:
  SearchAlgorithm(TuneOptions options, Space space) : options_(std::move(options)), space_(std::move(space)) {}
  virtual ~SearchAlgorithm() = default;
  SearchAlgorithm(const SearchAlgorithm&) = delete;
  SearchAlgorithm& operator=(const SearchAlgorithm&) = delete;
  /// Takes in how a trial stands; in order of their ids at first, and as often as one changes.
  void observe(TrialState);
  virtual Suggestion suggest() const = 0;
  const TuneOptions& options() const { return options_; }
  const Space& space() const { return space_; }
  const std::vector<TrialState>& trials() const { return trials_; }

 protected:
  bool has_open() const;
  /// The numbers of trial `number` (from 1): always the same.
  std::mt19937_64 dice(int number) const;
  Point random_point(int number) const;

 private:
  TuneOptions options_;
  Space space_;
  std::vector<TrialState> trials_;
};

/// Uniform in [0, 1), with 53 bits.
inline double uniform(std::mt19937_64& dice) { return static_cast<double>(dice() >> 11) * 0x1p-53; }

/// Searches that train every trial to its end, and only choose points.
class PointSearch : public SearchAlgorithm {
 public:
  using SearchAlgorithm::SearchAlgorithm;
  /// Of trial `number`, from 1.
  virtual Point next(int number) const = 0;
  Suggestion suggest() const override;
};

/// By options.algorithm. Throws OptionError for one that there is not.
std::unique_ptr<SearchAlgorithm> make_algorithm(const TuneOptions&, const Space&);
/// Whether a trial is to end behind its last epoch (Golovin et al., Google Vizier, KDD 2017, 3.2.1): its best score is
/// below the median of the means, up to there, of those that have finished; `options.startup` of these at least.
bool median_stops(const TuneOptions&, const std::vector<TrialState>&, const TrialState&);

}  // namespace trireme
