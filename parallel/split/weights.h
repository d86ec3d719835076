// Which dimensions of a model's weights the ranks of a grid divide.
#pragma once
#include <functional>

#include "framework/layers/module.h"
#include "parallel/split/grid.h"
#include "parallel/strategies/split_options.h"

namespace trireme {

/// Divides weights and buffers in place: each rank keeps its part. A ShardSpec says over which axes the plan sums a
/// gradient.
/// - Rows of options.placements come first, then experts along options.experts.
/// - Along options.tensor the flow of data decides about the other weights. forward runs the model on an example for
///   that, without numbers. Empty: layers take turns in the order of their names.
/// - Along options.one_weird_trick fully connected layers are divided by their outputs.
/// - Biases, and the weights and statistics of batch norms, follow the division of their layer.
/// leaves_axes_out: the plan may sum gradients over different axes. Then an axis is left out along which ranks use a
/// weight for the same work. Else one of these ranks brings the gradient to the sum, and the others bring zeros.
/// Throws Error for a row that names no weight, and for a dimension smaller than its ranks.
void divide_weights(Module& model, const std::shared_ptr<const Grid>&, const SplitOptions& options,
                    const std::function<void()>& forward, bool leaves_axes_out);

}  // namespace trireme
