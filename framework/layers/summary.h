// summary(): a table of a model's layers with shapes, parameters, operations and memory, as torchinfo prints it.
#pragma once
#include <string>
#include <vector>

#include "framework/layers/module.h"

namespace trireme {

/// One row: a layer of a Sequential, nested ones included. Any other module is one row.
struct LayerSummary {
  std::string name,      ///< prefix of the names of its tensors, for example "layer1.0"
      type;              ///< name of the C++ type, for example "Conv2d"; "function" for a function or lambda
  Shape output;          ///< shape of the result for the example
  Index parameters = 0,  ///< trained elements; a tensor that layers share counts at the first layer
      buffers = 0;       ///< elements that are not trained: running statistics, frozen weights
  double flops = 0;  ///< of one forward: two per multiply-add in convolutions and matrix products, one per element of
                     ///< the result of any other op
  Index bytes = 0;   ///< of the results of its ops: about the memory that forward keeps for backward
};
/// The layers of a model and their sums.
struct ModelSummary {
  std::vector<LayerSummary> layers;  ///< in the order in which they run
  Index parameters = 0,              ///< trained elements
      buffers = 0;                   ///< elements that are not trained
  double flops = 0;                  ///< of one forward
  Index bytes = 0;                   ///< about the memory that forward keeps for backward
};
/// Runs the model in evaluation mode on an example, which is a batch; flops and bytes are for a batch of that size.
/// Throws any error of the model.
ModelSummary summary(Module& model, const Tensor& example);
/// The name of a type as in the source, from type_info::name(), or the name of a function's symbol.
std::string demangled(const char* symbol);
/// A table with one line per layer and one line of sums.
std::string to_string(const ModelSummary&);

}  // namespace trireme
