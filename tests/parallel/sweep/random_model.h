// Random models that are no plain row of layers, with data and a loss that suit them, for sweep_models.
#pragma once
#include <functional>
#include <string>

#include "datasets/core/tensors.h"
#include "framework/layers/layers.h"
#include "tests/parallel/sweep/sweep.h"

namespace trireme::test {

/// A model that computes each row of a batch by itself (but for batch norms), its samples and its loss, all f64.
struct RandomModel {
  std::string text;              ///< each layer, op and option
  std::function<Module()> make;  ///< the same model, with tensors of its own, each time
  Sample data;                   ///< all samples: x and y, with fields
  Loss loss;
  bool batch_norm = false;
  std::vector<std::string> cases;  ///< names of the rows of the op table (tests/framework/cases.h) that it has
};

/// integers: only ops, weights and data whose sums are exact.
RandomModel random_model(RandomChoice, bool integers);

}  // namespace trireme::test
