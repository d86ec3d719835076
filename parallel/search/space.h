// The space of a search: the choices for a number of ranks, and its points, the candidates, as plain data. A candidate
// is written as a mesh and a strategy's text for parse_strategy().
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

/// A way to split the layers of a model over ranks.
struct LayerSplit {
  /// "tensor | place(fc1.*, whole=true)", "tensor(sequence=true)", "context", "experts", "spatial" or
  /// "one_weird_trick"; empty: layers are not split.
  std::string strategy = {};
  std::vector<Axis> axes = {};      ///< axes that it adds to the mesh: "tensor=2"; none for one_weird_trick
  bool divides_batch_axis = false,  ///< it splits over axis data (one_weird_trick), and reduces gradients itself
      experts_over_data = false;    ///< it divides experts over axis data
  bool operator==(const LayerSplit&) const = default;
  /// Whether ranks along axis data have different parts of weights.
  bool cuts_over_data() const { return divides_batch_axis || experts_over_data; }
  /// Whether images or texts are divided over ranks.
  bool cuts_inputs() const { return strategy.starts_with("spatial") || strategy.starts_with("context"); }
  /// Whether ranks along `axes` process different pixels or tokens of a sample: they sum the gradients of the weights
  /// that each of them has whole.
  bool cuts_samples() const { return cuts_inputs() || strategy.starts_with("tensor(sequence=true)"); }
};

/// The choices of a search. Empty lists: all values that fit the ranks, the batch and the model.
struct SearchSpace {
  int ranks = 1;                          ///< used by all candidates
  Index batch = 1;                        ///< samples per step, over all ranks
  int parts = 1;                          ///< parts of the model: the maximum number of stages
  std::vector<LayerSplit> splits = {{}};  ///< ways to split the layers; {}: not split
  std::vector<int> micro = {};            ///< micro-batches; empty: powers of two, and multiples of the stages
  int most_micro = 1024;                  ///< upper limit of micro-batches
  /// Pipeline schedules (parallel/strategies/schedules.h).
  std::vector<std::string> schedules = {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"};
  std::vector<int> chunks = {2, 4};                          ///< stages per rank of interleaved schedules
  std::vector<int> zero = {0, 1, 2, 3};                      ///< ZeRO stages; 0: none
  std::vector<bool> recompute = {false};                     ///< whether to use activation checkpointing
  std::vector<Index> buckets = {1 << 20, 1 << 22, 1 << 24};  ///< elements per bucket
  std::vector<Axis> mesh = {};                               ///< mesh of all candidates (mesh_of()); empty: any
  /// Ranks of a host, which fill it before the next host: zero(3) also divides weights within hosts only, with replicas
  /// on the other hosts (hybrid sharding). 1: hosts are not described, and up to 8 ranks divide weights.
  int host = 1;
  bool both_orders = true;  ///< also candidates with axis pipe before data, whose pipeline ranks are far apart
};

/// One point of the space.
struct SearchCandidate {
  int split = 0;             ///< index into SearchSpace::splits
  int data = 1, stages = 1;  ///< ranks that share the batch, and ranks along pipe
  bool pipe_first = false;   ///< axis pipe comes before data
  int micro = 1;             ///< number of micro-batches
  int schedule = -1;         ///< index into SearchSpace::schedules; -1: one stage
  int chunks = 1;            ///< stages per rank
  int zero = 0;              ///< ZeRO stage, 1 to 3; 0: none
  int shard = 1;             ///< of the `data` ranks, those along axis shard; above 1: zero(3) divides along it only
  bool reshard = true;       ///< ZeroOptions::reshard
  bool recompute = false;    ///< activation checkpointing
  Index bucket = 0;          ///< elements; 0: no reduction has configurable buckets
  bool operator==(const SearchCandidate&) const = default;
  /// Whether the candidates differ only in bucket sizes.
  bool is_alike(SearchCandidate other) const {
    other.bucket = bucket;
    return *this == other;
  }
};

/// All candidates. Throws Error for invalid numbers.
std::vector<SearchCandidate> candidates(const SearchSpace&);
/// The candidate's mesh, without axes of one rank except the last: "data=4,pipe=2", "data=2,shard=4".
std::vector<Axis> mesh_of(const SearchSpace&, const SearchCandidate&);
/// "pipeline(micro=8, schedule=1f1b) | data_parallel(first_bucket=262144, bucket=4194304) | zero(1)".
std::string strategy_of(const SearchSpace&, const SearchCandidate&);
/// The largest number of rows of a micro-batch on a rank.
Index rows_of(const SearchSpace&, const SearchCandidate&);
/// All divisors of a number, ascending.
std::vector<int> divisors(int number);

}  // namespace trireme
