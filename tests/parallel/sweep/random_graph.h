// Random graphs of ops, for sweep_ops.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "framework/tensor/tensor.h"
#include "tests/parallel/sweep/sweep.h"

namespace trireme::test {

/// What to compute of which inputs. Only the first op of a graph may have kinks: there all types compare equal numbers.
struct Graph {
  std::string text;
  std::vector<Shape> inputs;
  std::function<Tensor(const std::vector<Tensor>&)> run;
  bool kinks = false;
};

// sweep_layers.cpp
Graph transposed_convolution(RandomChoice&);
Graph resampled(RandomChoice&);  ///< interpolation, adaptive pooling
Graph grouped(RandomChoice&);    ///< group norm, RMS norm, layer norm over several axes
Graph selected(RandomChoice&);   ///< where, gather, scatter_add, sorts, scans, padding by modes

}  // namespace trireme::test
