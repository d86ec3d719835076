// Lower bounds of a candidate's time and memory, in closed form without a plan, so that most candidates are never
// simulated. They are never greater than the results of simulate() and predict_memory().
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/analysis/layers_table.h"
#include "parallel/comm/cluster.h"
#include "parallel/model/memory.h"
#include "parallel/search/space.h"

namespace trireme {

/// The model on one rank.
struct RankModel {
  std::vector<PartInfo> parts;  ///< with costs and comms of a micro-batch of the requested rows
  Index parameters = 0;         ///< length of the flat block
  std::shared_ptr<const std::vector<RankWeight>> weights = {};  ///< placement of each weight; null: unknown
};
/// A rank's model under a split, for `rows` per micro-batch and `data` ranks along data; none: the split is not
/// possible. Depends on its arguments only.
using RankModelOf = std::function<std::optional<RankModel>(const LayerSplit&, bool recompute, Index rows, int data)>;

/// The model of a rank under a candidate; none: the split is not possible.
std::optional<RankModel> model_of(const RankModelOf&, const SearchSpace&, const SearchCandidate&);

struct CandidateBound {
  double seconds = 0;  ///< lower bound of a step's time
  Index bytes = 0;     ///< lower bound for the rank that needs most
};

/// The links that lines of a mesh use, from the placement of ranks on nodes.
class MeshLinks {
 public:
  /// node_of: by rank. block: ranks fill one node after the other.
  MeshLinks(const std::vector<int>& node_of, bool block) : node_of_(node_of), block_(block) {}
  /// How many lines along an axis (or several joined by +) span several nodes: among the ranks whose coordinate along
  /// `fixed` is `at` (empty: all ranks).
  enum class Reach : std::uint8_t { none, some, all };
  Reach reach(const std::vector<Axis>& mesh, const std::string& along, const std::string& fixed = {}, int at = 0) const;

 private:
  bool crosses(int base, const std::vector<std::pair<int, int>>& sizes_and_strides, int last) const;
  const std::vector<int>& node_of_;
  bool block_;
};

/// Computes bounds of candidates in turn; consecutive candidates with equal mesh and rows share work.
class CandidateBounds {
 public:
  /// All arguments must outlive it.
  CandidateBounds(const SearchSpace&, const RankModelOf&, const Cluster&, const MemoryOptions&);
  /// The bound; none: the split is not possible, or the model has fewer parts than stages.
  std::optional<CandidateBound> of(const SearchCandidate&);

 private:
  struct Stage {  // consecutive parts, for one micro-batch; seconds and bytes
    double forward = 0, backward_input = 0, backward_weight = 0;
    Index kept = 0, arrived = 0;
    Slice weights = {};
    int first = 0;                         // index of its first part
    std::vector<double> backward_of = {};  // by part
    double all() const { return forward + backward_input + backward_weight; }
    double backward() const { return backward_input + backward_weight; }
  };
  struct Sums {  // reductions of a rank's gradients and weights
    double reduce = 0, last = 0, gather = 0;
    double first = 0;   // gather of the first bucket, if the first forward waits for it
    double behind = 0;  // computation after that of the last bucket
  };
  const RankModel* model_for(const SearchCandidate&);
  int stage_of(const SearchCandidate&, int rank, int chunk) const;
  const std::vector<Stage>& stages_of(const SearchCandidate&, const RankModel&);
  Sums sums_of(const SearchCandidate&, const RankModel&, int rank, const std::vector<Stage>&);
  double seconds_of(const SearchCandidate&, const RankModel&, const std::vector<Stage>&);
  Index bytes_of(const SearchCandidate&, const RankModel&, int rank, const std::vector<Stage>&) const;
  void enter(const SearchCandidate&);
  MeshLinks::Reach reach_of(const std::string& axes, int rank);
  double call(MeshLinks::Reach, CallKind, int ranks, Index bytes) const;

  const SearchSpace& space_;
  const RankModelOf& model_;
  const Cluster& cluster_;
  MemoryOptions memory_;
  double speed_ = 0;  // of the fastest device with a rank
  std::vector<int> node_of_;
  MeshLinks links_;
  // Cached values of the previous candidate.
  SearchCandidate last_;
  bool any_ = false;
  std::vector<Axis> mesh_;
  std::map<std::string, MeshLinks::Reach> reach_;                   // by axis of the layers' calls
  std::map<std::pair<std::string, int>, MeshLinks::Reach> shared_;  // of reductions, by axes and pipeline stage
  std::map<bool, std::optional<RankModel>> models_;                 // by recomputation
  std::map<std::pair<bool, int>, std::vector<Stage>> cut_;          // by recomputation and chunks
};

/// The mesh axes over which a candidate's gradients are summed, joined by +, for weights that no axis divides; empty:
/// none.
std::string summed_axes(const SearchSpace&, const SearchCandidate&);

}  // namespace trireme
