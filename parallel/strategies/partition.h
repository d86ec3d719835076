// Cuts a model's parts into stages, and its weights into shares.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

struct PartitionOptions {
  int stages = 1;
  double bandwidth = 1e10;  ///< bytes per second across a cut
  Index memory = 0;         ///< bytes that a stage may hold; 0: unlimited
  /// Number of micro-batches that a stage holds at once.
  std::function<int(int stage)> in_flight = [](int) { return 1; };
};
/// The first part of each stage (0 for the first stage), by dynamic programming. It minimizes the longest time of a
/// stage or of a cut's transfer, then their bytes (Narayanan et al. 2019, PipeDream, 3.1, without replication). Parts
/// without costs are equal. A stage holds 12 bytes per parameter (weight, gradient and momentum in f32) and the
/// activations of its micro-batches. Throws Error with the least memory needed if no cut fits.
std::vector<int> cut_by_cost(const std::vector<PartInfo>&, const PartitionOptions&);
/// Stages with equal numbers of parts; if that is not possible, the first stages have one more.
std::vector<int> cut_evenly(int parts, int stages);
/// Stages that begin at the named layers, "conv2, fc1"; one name fewer than stages.
std::vector<int> cut_by_name(const std::vector<PartInfo>&, int stages, const std::string& names);
/// Cuts a flat block of `parameters` into `shares` slices of whole consecutive parts, each as near as possible to an
/// even share of the rest. Throws Error if fewer parts have weights.
std::vector<Slice> cut_by_size(const std::vector<PartInfo>&, Index parameters, int shares);

}  // namespace trireme
