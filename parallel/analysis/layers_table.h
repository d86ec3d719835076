// layers_table(): for a plan with divided layers, the placement of each weight and the messages of a rank for each
// layer (compare PyTorch's visualize_sharding).
#pragma once
#include <string>
#include <vector>

#include "framework/optim/parameters.h"
#include "parallel/plan/plan.h"

namespace trireme {

/// A weight on a rank.
struct RankWeight {
  std::string name;       ///< in the model: "blocks.0.attn.qkv.weight"
  Index begin;            ///< its first element in the rank's flat block
  std::string placement;  ///< to_string(ShardSpec), or the shape of a weight without one
  bool divided;           ///< whether other ranks have the rest
};
/// The weights of a dry run's model, in the order of the flat block.
std::vector<RankWeight> rank_weights(const Parameters&);

/// The weights of each part of the plan with their placements, and the calls and payload of its moves (PartInfo::comms)
/// in forward and backward. Consecutive parts that are equal but for their names share an entry. The last lines have
/// the totals of all parts by mesh axis. rows: of the micro-batch.
std::string layers_table(const Plan&, const std::vector<RankWeight>&, Index rows);

}  // namespace trireme
