// The space of a search: what may be chosen for a number of ranks, and its points, the candidates, as plain data. A
// candidate is written as a mesh and a strategy's text, which parse_strategy() reads.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

/// A way to split the layers of a model over ranks.
struct LayerSplit {
  std::string strategy = {};        ///< "tensor(whole=fc1)", "spatial", "one_weird_trick"; empty: layers stay whole
  std::vector<Axis> axes = {};      ///< that it adds to the mesh, its ranks: "tensor=2"; of one_weird_trick: none
  bool divides_batch_axis = false;  ///< it splits over the axis data (one_weird_trick), and sums gradients itself
  bool operator==(const LayerSplit&) const = default;
  bool cuts_images() const { return strategy.starts_with("spatial"); }
};

/// What a search chooses among. Empty lists of numbers: those that fit the ranks, the batch and the model.
struct SearchSpace {
  int ranks = 1;    ///< that all candidates use
  Index batch = 1;  ///< samples of a step, over all ranks
  int parts = 1;    ///< of the model: the most stages
  std::vector<LayerSplit> splits = {{}};
  std::vector<int> micro = {};  ///< micro-batches; empty: powers of two, and multiples of the stages
  int most_micro = 1024;        ///< of these
  std::vector<std::string> schedules = {"gpipe", "1f1b", "interleaved", "zb-h1"};
  std::vector<int> chunks = {2, 4};                          ///< of schedules that interleave
  std::vector<int> zero = {0, 1, 2, 3};                      ///< stages; 0: none
  std::vector<bool> recompute = {false};                     ///< whether layers run again in backward
  std::vector<Index> buckets = {1 << 20, 1 << 22, 1 << 24};  ///< elements
  std::vector<Axis> mesh = {};                               ///< that candidates have (mesh_of()); empty: any
  bool both_orders = true;  ///< ranks of a pipeline also lie far apart: the axis pipe in front of data
};

/// One point of the space.
struct SearchCandidate {
  int split = 0;             ///< index of SearchSpace::splits
  int data = 1, stages = 1;  ///< ranks along data and pipe
  bool pipe_first = false;   ///< the axis pipe stands in front of data
  int micro = 1;
  int schedule = -1;  ///< index of SearchSpace::schedules; -1: there is one stage
  int chunks = 1;
  int zero = 0;
  bool recompute = false;
  Index bucket = 0;  ///< elements; 0: nothing is summed in buckets that may be chosen
  bool operator==(const SearchCandidate&) const = default;
  /// Whether they differ in nothing but the sizes of buckets.
  bool is_alike(SearchCandidate other) const {
    other.bucket = bucket;
    return *this == other;
  }
};

/// All of them. Throws Error for numbers that cannot be.
std::vector<SearchCandidate> candidates(const SearchSpace&);
/// Of a candidate: the mesh, without axes of one rank but for the last; "data=4,pipe=2".
std::vector<Axis> mesh_of(const SearchSpace&, const SearchCandidate&);
/// "pipeline(micro=8, schedule=1f1b) | data_parallel(first_bucket=262144, bucket=4194304) | zero(1)".
std::string strategy_of(const SearchSpace&, const SearchCandidate&);
/// Rows of a micro-batch on the rank that has most of them.
Index rows_of(const SearchSpace&, const SearchCandidate&);
/// All divisors, ascending.
std::vector<int> divisors(int number);

}  // namespace trireme
