// What a candidate takes at least: time and memory by closed forms, without its plan, so that most candidates are never
// simulated. Neither is ever above what simulate() and predict_memory() say of the plan.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/cluster.h"
#include "parallel/model/memory.h"
#include "parallel/search/space.h"

namespace trireme {

/// The model as one rank has it.
struct RankModel {
  std::vector<PartInfo> parts;  ///< costs and comms are those of a micro-batch of the rows asked for
  Index parameters = 0;         ///< length of the flat block
};
/// A rank's model under a split, for rows of a micro-batch and so many ranks along data; none: it cannot be split so.
/// A function of its arguments alone.
using RankModelOf = std::function<std::optional<RankModel>(const LayerSplit&, bool recompute, Index rows, int data)>;

struct CandidateBound {
  double seconds = 0;  ///< of a step
  Index bytes = 0;     ///< of the rank that needs most
};

/// Which links the ranks of a mesh's lines use, by where the ranks lie.
class MeshLinks {
 public:
  /// node_of: by rank. block: neighbouring ranks fill one node after the other.
  MeshLinks(const std::vector<int>& node_of, bool block) : node_of_(node_of), block_(block) {}
  /// Ranks whose coordinate along `fixed` is `at` (empty: all): how many of their lines along an axis, or several
  /// joined by +, reach over several nodes.
  enum class Reach : std::uint8_t { none, some, all };
  Reach reach(const std::vector<Axis>& mesh, const std::string& along, const std::string& fixed = {}, int at = 0) const;

 private:
  bool crosses(int base, const std::vector<std::pair<int, int>>& sizes_and_strides, int last) const;
  const std::vector<int>& node_of_;
  bool block_;
};

/// Bounds of candidates one after the other; those with the same mesh and rows are cheapest together.
class CandidateBounds {
 public:
  /// All must outlive it.
  CandidateBounds(const SearchSpace&, const RankModelOf&, const Cluster&, const MemoryOptions&);
  /// None: the model cannot be split so, or has fewer parts than stages.
  std::optional<CandidateBound> of(const SearchCandidate&);

 private:
  struct Stage {  // neighbouring parts, for one micro-batch, in seconds and bytes
    double forward = 0, backward_input = 0, backward_weight = 0;
    Index kept = 0, arrived = 0;
    Slice weights = {};
    int first = 0;                         // part
    std::vector<double> backward_of = {};  // its parts
    double all() const { return forward + backward_input + backward_weight; }
    double backward() const { return backward_input + backward_weight; }
  };
  struct Sums {  // of a rank's gradients and weights over those that share them
    double reduce = 0, last = 0, gather = 0, before = 0;
    double behind = 0;  // computation that follows behind the last bucket's
  };
  const RankModel* model_of(const SearchCandidate&);
  const std::vector<Stage>& stages_of(const SearchCandidate&, const RankModel&);
  Sums sums_of(const SearchCandidate&, const RankModel&, int rank, const std::vector<Stage>&);
  double seconds_of(const SearchCandidate&, const RankModel&, const std::vector<Stage>&);
  Index bytes_of(const SearchCandidate&, const RankModel&, int rank, const std::vector<Stage>&) const;
  void enter(const SearchCandidate&);
  double call(MeshLinks::Reach, CallKind, int ranks, Index bytes) const;

  const SearchSpace& space_;
  const RankModelOf& model_;
  const Cluster& cluster_;
  MemoryOptions memory_;
  double speed_ = 0;  // of the fastest device that has a rank
  std::vector<int> node_of_;
  MeshLinks links_;
  // Of the candidate before, as far as this one has the same.
  SearchCandidate last_;
  bool any_ = false;
  std::vector<Axis> mesh_;
  std::map<std::string, MeshLinks::Reach> reach_;           // of what layers send along
  std::vector<MeshLinks::Reach> shared_;                    // by stage of the pipeline: of what sums gradients
  std::map<bool, std::optional<RankModel>> models_;         // by recomputation
  std::map<std::pair<bool, int>, std::vector<Stage>> cut_;  // and chunks
};

/// The mesh axes over which a candidate's gradients are summed, joined by +; empty: none.
std::string summed_axes(const SearchSpace&, const SearchCandidate&);

}  // namespace trireme
