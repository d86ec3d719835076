// MachineProfile: what this machine was measured to take for the pieces of a training step, kept in a file
// (machine.toml) that predictions of other runs are made from.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "parallel/analysis/simulate.h"
#include "parallel/comm/cluster.h"
#include "parallel/plan/plan.h"

namespace trireme {

/// A number that was measured several times.
struct Measured {
  double value = 0;                                  ///< median
  double spread = 0;                                 ///< half the distance of the quartiles, as a share of the median
  bool operator==(const Measured&) const = default;  ///< member by member
};

/// What a model's steps take on one rank while so many ranks do the same at the same time, each on cores of its own:
/// they share memory and caches, as the ranks of a run do.
struct ModelProfile {
  /// The costs of a micro-batch of so many rows, in seconds.
  struct Size {
    Index rows = 0;
    Measured forward = {}, backward = {}, loss = {};  ///< of the whole model, by the executor
    std::vector<PartCost> parts = {};                 ///< which sum up to these: forward, and both halves of backward
    Measured between = {};                            ///< of a step, what it takes beside these and the update
    bool operator==(const Size&) const = default;
  };
  std::string model;                             ///< as `trireme train` names it
  std::map<std::string, std::string> arch = {};  ///< settings that change it: dtype, data.image_size, recompute, arch.*
  int ranks = 1, threads = 1;                    ///< at the same time; of each
  Index parameters = 0;
  std::vector<std::string> names = {};  ///< of its parts
  std::string optimizer = {};
  Measured update = {};          ///< seconds per parameter
  std::vector<Size> sizes = {};  ///< in the order of their rows
  bool operator==(const ModelProfile&) const = default;
};

/// What a step is made of for that many rows: between measured sizes by the line through both, beyond them by the line
/// through the two nearest, never below 0.
struct StepCosts {
  std::vector<PartCost> parts;
  double loss = 0, update = 0, between = 0;  ///< update: per parameter
  double spread = 0;                         ///< of the times, as Measured::spread
  bool extrapolated = false;                 ///< rows are beyond the sizes
};
StepCosts costs_at(const ModelProfile&, Index rows);
/// Standard deviation of the logarithm of what a computation takes, from the quartiles of log-normal times, at most
/// Cluster::most_jitter: the median over sizes.
double jitter_of(const ModelProfile&);

/// Between ranks of the machine: calls as they were measured; others by a latency and a bandwidth, those of the
/// smallest and of the largest message.
Link link_of(const std::vector<MeasuredCall>&);

struct MachineProfile {
  /// What it was measured on and with: "date", "host", "processor", "clock_mhz", "cores", "device", "transport",
  /// "library", "version".
  std::map<std::string, std::string> about = {};
  std::vector<ModelProfile> models = {};
  std::vector<MeasuredCall> calls = {};  ///< between ranks of this host
  double jitter = 0;                     ///< standard deviation of the logarithm of a computation's time
  Measured load = {};        ///< seconds per sample that a rank's loader takes, workers included; 0: not measured
  Measured fresh = {};       ///< seconds per byte of memory that is given back to the system and written anew
  Measured vector_op = {};   ///< seconds per byte of each elementwise operation by which weights are mixed
  Measured checkpoint = {};  ///< seconds per byte that is written; 0: not measured
  bool operator==(const MachineProfile&) const = default;
};

}  // namespace trireme
