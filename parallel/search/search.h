// search(): the fastest candidates of a space on a described cluster, within the memory of its ranks.
//
// Candidates are visited in the order of their lower bounds (bounds.h). The plan of each is built, checked and
// simulated, until no other candidate can be faster than the best ones (branch and bound: Land and Doig, Econometrica
// 28, 1960), or until the allowed work is done. Candidates are only left out by a bound: if SearchResult::complete, no
// unsimulated candidate is faster than the ranked ones.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "parallel/analysis/simulate.h"
#include "parallel/search/bounds.h"
#include "parallel/strategies/strategy.h"

namespace trireme {

/// Input of search().
struct SearchInput {
  SearchSpace space = {};
  RankModelOf model = {};
  SimulateOptions machine = {};  ///< with the cluster; jitter and `steps` are ignored
  /// Sets the costs of a step outside of its parts, for rows of a micro-batch (SimulateOptions::loss, update); null:
  /// the costs of `machine`.
  std::function<void(SimulateOptions&, Index rows)> beside = {};
  MemoryOptions numbers = {};
  Index memory = 0;                 ///< bytes that a rank may hold; 0: unlimited
  Source costs = Source::assumed;   ///< source of the parts' seconds
  std::optional<double> band = {};  ///< relative error of predictions; none: error_band() of the weakest source
  double jitter = 0, heldout = 0;   ///< of the parts' seconds, for error_band()
  int top = 20;                     ///< number of strategies to rank, at least 1
  Index work = 3'000'000;           ///< bound of simulated actions, about a microsecond each
  /// Parses a strategy and applies the run's other settings.
  std::function<Strategy(const std::string&)> strategy = [](const std::string& text) { return parse_strategy(text); };
  /// Adds the actions that a step adds to a plan after its strategies; null: none.
  std::function<Plan(Plan, const Strategy&)> finish = {};
};

/// A simulated candidate.
struct RankedStrategy {
  SearchCandidate candidate = {};
  std::vector<Axis> mesh = {};
  std::string strategy = {};   ///< text for parse_strategy()
  std::string partition = {};  ///< Plan::partition: where stages begin; empty: one stage
  double seconds = 0;          ///< duration of a step
  double least = 0;            ///< lower bound of `seconds`
  RankMemory memory = {};      ///< of the rank that needs most
  double bubble = 0;           ///< Simulation::bubble
  double exposed = 0;          ///< seconds of exposed communication, of the worst program
};

/// Result of search().
struct SearchResult {
  /// Fastest first. Of candidates that differ only in buckets, only the fastest.
  std::vector<RankedStrategy> ranked = {};
  Index candidates = 0, simulated = 0;
  std::map<std::string, Index> dropped = {};  ///< number of candidates left out, by reason
  bool complete = false;       ///< whether no unsimulated candidate can be faster than the last ranked one
  bool best_is_known = false;  ///< whether none can be faster than the first one
  double least_left = 0;       ///< lower bound of the unsimulated candidates' seconds; 0: none is left
  Source weakest = Source::assumed;
  double band = 0;    ///< relative error of predictions
  double margin = 0;  ///< (second - first) / first; infinite without a second
  int alike = 0;      ///< number of ranked candidates within the band of the first, with the first
  /// If nothing fits the memory: the candidate that needs least.
  std::optional<RankedStrategy> nearest = {};
};

/// Relative error of predictions from numbers of this source: 10, 20 and 50 %.
double error_band(Source);
/// At least that, the error of held-out measurements, and two standard deviations of the measured durations: exp(2
/// jitter) - 1.
double error_band(Source, double jitter, double heldout);
/// Whether some of the first ranks share a node, and whether they span several nodes.
struct UsedLinks {
  bool inside = false, between = false;
};
UsedLinks used_links(const Cluster&, int ranks);
/// Weakest source of the numbers that a simulation on the cluster uses.
Source weakest_source(const Cluster&, int ranks, Source costs);

/// Builds, checks and simulates a candidate's plan; or returns why that is not possible.
std::variant<RankedStrategy, std::string> evaluate(const SearchInput&, const SearchCandidate&);
/// Searches the space. Throws Error for a cluster with fewer devices than ranks, and for invalid numbers. The result of
/// a space without candidates has no candidates, nothing ranked and no `nearest`.
SearchResult search(const SearchInput&);

/// The largest use of memory and its bytes: "activations".
std::pair<std::string, Index> largest_use(const RankMemory&);

}  // namespace trireme
