// Which layers of a model to split: for each part of a chain one of several choices, so that what the parts take and
// what it takes to lay tensors out anew between them is least (Jia et al., OptCNN, arXiv 1802.04924, on a chain).
#pragma once
#include <functional>
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

/// What a part takes under one choice.
struct PartChoice {
  double seconds = 0;
  Index bytes = 0;  ///< that a rank keeps of it
};
struct LayerChoices {
  std::vector<std::vector<PartChoice>> parts;  ///< of each part, in forward order: at least one choice
  /// Seconds between a part under choice `before` and the next one, `part`, under `now`; null: 0.
  std::function<double(int part, int before, int now)> relayout = {};
  double seconds_per_byte = 0;  ///< what memory is worth beside time; 0: nothing
};
struct LayerAssignment {
  std::vector<int> choices;  ///< of each part
  double cost = 0;           ///< seconds, and bytes by what they are worth
};
/// The best ones, at most `count`, in order; of equal cost the first choices first. By dynamic programming over the
/// parts that keeps as many beginnings for each choice of the last part: parts * choices^2 * count steps. Throws Error
/// for a part without a choice.
std::vector<LayerAssignment> best_assignments(const LayerChoices&, int count);

}  // namespace trireme
