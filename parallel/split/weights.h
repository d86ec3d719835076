// Which dimensions of a model's weights the ranks of a grid divide.
#pragma once
#include <functional>

#include "framework/layers/module.h"
#include "parallel/split/grid.h"
#include "parallel/strategies/split_options.h"

namespace trireme {

/// Divides weights and buffers in place: each rank keeps its part, and a ShardSpec says over which axes the plan sums a
/// gradient. Rows of options.placements come first. Along
/// options.tensor the data flow decides about the other weights, which `forward` shows: it runs the model on an example
/// and gets no results. Empty: layers take turns in the order of their names. Along options.one_weird_trick fully
/// connected layers are divided by their outputs. The biases and channels' numbers of a divided layer follow it.
/// sums_what_differs: the plan may sum gradients over different axes. Then those are left out along which ranks find
/// the whole gradient; otherwise one of them brings it. Throws Error for a row that names no weight, and for a
/// dimension smaller than its ranks.
void divide_weights(Module& model, const std::shared_ptr<const Grid>&, const SplitOptions& options,
                    const std::function<void()>& forward, bool sums_what_differs);

}  // namespace trireme
