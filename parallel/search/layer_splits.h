// Which layers of a model to split: one of several choices for each part of a chain, so that the time of the parts plus
// the time to convert tensor layouts between them is minimal (Jia et al., OptCNN, arXiv 1802.04924, on a chain).
#pragma once
#include <functional>
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

/// Cost of a part under one choice.
struct PartChoice {
  double seconds = 0;
  Index bytes = 0;  ///< stored by a rank
};
struct LayerChoices {
  std::vector<std::vector<PartChoice>> parts;  ///< choices of each part, in forward order; at least one
  /// Seconds to convert the layout between a part under choice `before` and the next part, `part`, under `now`; null:
  /// 0.
  std::function<double(int part, int before, int now)> relayout = {};
  double seconds_per_byte = 0;  ///< price of memory in seconds; 0: free
};
struct LayerAssignment {
  std::vector<int> choices;  ///< by part
  double cost = 0;           ///< seconds, plus bytes times their price
};
/// The best assignments, at most `count`, best first; for equal cost earlier choices come first. Dynamic programming
/// over the parts keeps `count` prefixes for each choice of the last part, in parts * choices^2 * count steps. Throws
/// Error for a part without a choice.
std::vector<LayerAssignment> best_assignments(const LayerChoices&, int count);

}  // namespace trireme
