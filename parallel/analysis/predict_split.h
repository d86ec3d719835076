// What splitting images does to the memory of a model's parts, from its shapes alone.
#pragma once
#include <vector>

#include "parallel/model/chain.h"
#include "parallel/strategies/split_options.h"

namespace trireme {

/// Runs the parts forward once on x, a micro-batch, undivided, and turns the costs' bytes into those of the rank with
/// most when images are cut over the mesh as asked: what the part keeps is shared, and each window layer brings a halo.
void predict_split(std::vector<PartCost>&, const Chain&, const Tensor& x, const std::vector<Axis>& mesh,
                   const SplitOptions&);

}  // namespace trireme
