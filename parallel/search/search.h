// search(): the candidates of a space that take the least time on a described cluster, within the memory of its ranks.
//
// Candidates are gone through in the order of the least time that they can take (bounds.h); the plan of each is made,
// checked and simulated, until no other can be faster than the best ones (branch and bound: Land and Doig, Econometrica
// 28, 1960), or until so much work is done as is allowed. What is left out is so by a bound, never by a guess: where
// SearchResult::complete, no candidate that was not simulated is faster than those that are ranked.
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

/// What a search is given.
struct SearchInput {
  SearchSpace space = {};
  RankModelOf model = {};
  SimulateOptions machine = {};  ///< with the cluster; jitter and `steps` are left out
  /// Fills in what a step takes beside its parts, for rows of a micro-batch (SimulateOptions::loss, update); null: as
  /// `machine` says.
  std::function<void(SimulateOptions&, Index rows)> beside = {};
  MemoryOptions numbers = {};
  Index memory = 0;                 ///< bytes that a rank may hold; 0: any number
  Source costs = Source::assumed;   ///< of the parts' seconds
  std::optional<double> band = {};  ///< relative error of predictions; none: by the weakest source (error_band)
  int top = 20;                     ///< strategies ranked, at least 1
  Index work = 3'000'000;           ///< actions of plans that may be simulated, about a microsecond each
  /// From a text; with what the run's settings say besides.
  std::function<Strategy(const std::string&)> strategy = [](const std::string& text) { return parse_strategy(text); };
  /// What a step adds to a plan whose strategies are through; null: nothing.
  std::function<Plan(Plan, const Strategy&)> finish = {};
};

/// A candidate, simulated.
struct RankedStrategy {
  SearchCandidate candidate = {};
  std::vector<Axis> mesh = {};
  std::string strategy = {};   ///< as parse_strategy() reads it
  std::string partition = {};  ///< Plan::partition: where the stages begin; empty: there is one
  double seconds = 0;          ///< of a step
  double least = 0;            ///< the bound
  RankMemory memory = {};      ///< of the rank that needs most
  double bubble = 0;           ///< Simulation::bubble
  double exposed = 0;          ///< seconds of communication for which computation stands still, of the worst program
};

/// What a search has found.
struct SearchResult {
  /// The fastest first. Of those that differ in nothing but buckets the fastest alone.
  std::vector<RankedStrategy> ranked = {};
  Index candidates = 0, simulated = 0;
  std::map<std::string, Index> dropped = {};  ///< candidates by why they were left out
  bool complete = false;       ///< none that was not simulated can be faster than the last one that is ranked
  bool best_is_known = false;  ///< ... than the first one
  double least_left = 0;       ///< seconds that the others take at least; 0: there are none
  Source weakest = Source::assumed;
  double band = 0;    ///< relative error of predictions
  double margin = 0;  ///< (second - first) / first; infinite where there is no second
  int alike = 0;      ///< how many of `ranked` lie within the band of the first, the first included
  /// Where nothing keeps within the memory: what needs least.
  std::optional<RankedStrategy> nearest = {};
};

/// The relative error of predictions from numbers of such a source, where nothing else is known: 10, 20 and 50 %.
double error_band(Source);
/// Whether some of the first ranks lie on one node, and whether on several.
struct UsedLinks {
  bool inside = false, between = false;
};
UsedLinks used_links(const Cluster&, int ranks);
/// The weakest source of what a simulation on the cluster reads.
Source weakest_source(const Cluster&, int ranks, Source costs);

/// A candidate's plan, checked and simulated; or why it cannot be.
std::variant<RankedStrategy, std::string> evaluate(const SearchInput&, const SearchCandidate&);
/// Throws Error for a cluster with fewer devices than ranks and for numbers that cannot be. Without any candidate the
/// result says why, too: no candidates, nothing ranked, no `nearest`.
SearchResult search(const SearchInput&);

/// The use of memory that is largest, and its bytes: "activations".
std::pair<std::string, Index> largest_use(const RankMemory&);

}  // namespace trireme
