// Every bundled model in a small size, with data and a loss.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "datasets/core/tensors.h"
#include "framework/layers/layers.h"
#include "parallel/strategies/strategy.h"

namespace trireme::test {

/// A bundled model in f64: the same operations as in its usual size, on fewer channels, tokens or pixels.
struct SmallModel {
  std::string name;              ///< of the registry, or of its family
  std::function<Module()> make;  ///< with tensors of its own each time, and values that depend on names alone
  Sample data;                   ///< one batch
  Loss loss;
  bool batch_norm = false,  ///< statistics of micro-batches are part of the model
      large = false;        ///< a run takes more than a tenth of a second
};

/// A model of these layers, with start values, for images [height, width, channels] and `classes` labels of each.
SmallModel small_model(const std::string& name, const Shape& image, const std::function<Module()>& make,
                       Index classes = 5);

/// All bundled models. Batches have 7 rows, so that 2, 3 and 4 ranks have unequal shares.
std::vector<SmallModel> small_models();
/// Sets all weights: to normal values of variance 1 / fan-in, and vectors near 1 (scales) or 0 (biases). The values
/// depend on the order of the tensors alone. No gradient of such a model is zero by its start.
void set_start(Module&);

}  // namespace trireme::test
