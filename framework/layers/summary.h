// summary(): what a model consists of, layer by layer (Keras's summary(), torchinfo).
#pragma once
#include <string>
#include <vector>

#include "framework/layers/module.h"

namespace trireme {

/// One layer of a Sequential, or of those within it; a module of another kind is one row.
struct LayerSummary {
  std::string name,      ///< as in the names of its tensors: "layer1.0"
      type;              ///< of the C++ type: "Conv2d"; of a function or lambda "function"
  Shape output;          ///< for the example
  Index parameters = 0,  ///< trained numbers; of tensors that layers share, at the first
      buffers = 0;       ///< numbers that are not trained: running statistics, frozen weights
  double flops = 0;      ///< of a forward: two per multiplication and addition in convolutions and products, one per
                         ///< element of the result of other ops
  Index bytes = 0;       ///< of the results of its ops: about what a forward keeps for backward
};
struct ModelSummary {
  std::vector<LayerSummary> layers;
  Index parameters = 0, buffers = 0;
  double flops = 0;
  Index bytes = 0;
};
/// Runs the model in evaluation on an example, a batch of any size: of what a batch of that size costs. Throws what the
/// model throws for it.
ModelSummary summary(Module& model, const Tensor& example);
/// A table: a line per layer, and the sums.
std::string to_string(const ModelSummary&);

}  // namespace trireme
