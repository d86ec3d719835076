// Cuts a model's parts into pipeline stages, and its weights into shares of parameter servers.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

/// Options of cut_by_cost().
struct PartitionOptions {
  int stages = 1;           ///< number of stages, at least 1
  double bandwidth = 1e10;  ///< bytes per second across a cut
  Index memory = 0;         ///< bytes that a stage may hold; 0: unlimited
  /// Number of micro-batches whose activations a stage holds at once.
  std::function<int(int stage)> in_flight = [](int) { return 1; };
};
/// Finds a cut by dynamic programming (Narayanan et al. 2019, PipeDream, 3.1, without replication): the longest time of
/// a stage or of a transfer between stages is minimal; of such cuts, the one that transfers the fewest bytes. Returns
/// the index of the first part of each stage; stage 0 begins at 0. If parts have no costs, they count as equal. A stage
/// needs 12 bytes per parameter (weight, gradient and momentum in f32), and its micro-batches' activations. Throws
/// Error with the least memory needed if no cut fits.
std::vector<int> cut_by_cost(const std::vector<PartInfo>&, const PartitionOptions&);
/// The first part of each stage, for stages with equal numbers of parts; the first stages have one more if needed.
std::vector<int> cut_evenly(int parts, int stages);
/// The first part of each stage. names: the parts at which stages begin, except the first stage: "conv2, fc1". Throws
/// Error for unknown names, for names that are not in the model's order, and for another number than stages - 1.
std::vector<int> cut_by_name(const std::vector<PartInfo>&, int stages, const std::string& names);
/// Cuts the flat block of `parameters` elements into `shares` slices of whole consecutive parts. Each slice is as near
/// as possible to an even share of the elements that are left. Throws Error if fewer parts than shares have weights.
std::vector<Slice> cut_by_size(const std::vector<PartInfo>&, Index parameters, int shares);

}  // namespace trireme
