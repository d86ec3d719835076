// How a model's parts are cut into stages, and its weights into shares.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

struct PartitionOptions {
  int stages = 1;
  double bandwidth = 1e10;  ///< bytes per second over a cut
  Index memory = 0;         ///< bytes that a stage may hold; 0: any number
  /// Micro-batches that a stage holds at once.
  std::function<int(int stage)> in_flight = [](int) { return 1; };
};
/// The first part of each stage (the first is 0), by dynamic programming: the longest of all stages' times and cuts'
/// transfers is least, and then their bytes (Narayanan et al. 2019, PipeDream, 3.1, without replication). Parts without
/// costs count alike. A stage holds 12 bytes per parameter (weight, gradient, momentum in f32) and what its
/// micro-batches keep. Throws Error when no cut keeps within the memory, and says what the best one needs.
std::vector<int> cut_by_cost(const std::vector<PartInfo>&, const PartitionOptions&);
/// Stages of as many parts, the first ones one more where it does not come out even.
std::vector<int> cut_evenly(int parts, int stages);
/// Stages that begin at the layers named, "conv2, fc1": one fewer than there are stages.
std::vector<int> cut_by_name(const std::vector<PartInfo>&, int stages, const std::string& names);
/// So many slices that cover a flat block of `parameters`, each of whole neighbouring parts, as near to an even share
/// of what is left as these come. Throws Error where fewer parts have weights.
std::vector<Slice> cut_by_size(const std::vector<PartInfo>&, Index parameters, int shares);

}  // namespace trireme
