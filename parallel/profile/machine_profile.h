// MachineProfile: measured durations of the pieces of training steps on this machine, stored in a file (machine.toml)
// for predictions of other runs.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "parallel/analysis/simulate.h"
#include "parallel/comm/cluster.h"
#include "parallel/plan/plan.h"

namespace trireme {

/// A repeated measurement.
struct Measured {
  double value = 0;                                  ///< median
  double spread = 0;                                 ///< half the interquartile range, as a share of the median
  bool operator==(const Measured&) const = default;  ///< member by member
};

/// Durations of a model's steps on one rank while `ranks` ranks do the same, each on separate cores. Like the ranks of
/// a run they share memory and caches.
struct ModelProfile {
  /// Costs of a micro-batch of `rows` rows, in seconds.
  struct Size {
    Index rows = 0;
    Measured forward = {}, backward = {}, loss = {};  ///< of the whole model, run by the executor
    std::vector<PartCost> parts = {};                 ///< parts, which add up to these: forward, and both halves of
                                                      ///< backward
    Measured between = {};                            ///< time of a step outside of these and the update
    bool operator==(const Size&) const = default;
  };
  std::string model;                             ///< name in `trireme train`
  std::map<std::string, std::string> arch = {};  ///< settings that change the model: dtype, data.image_size, recompute,
                                                 ///< arch.*
  int ranks = 1, threads = 1;                    ///< ranks measured together; threads of each
  Index parameters = 0;
  std::vector<std::string> names = {};  ///< names of the parts
  std::string optimizer = {};
  Measured update = {};          ///< seconds per parameter
  std::vector<Size> sizes = {};  ///< ascending by rows
  bool divided = false;          ///< measured of a rank's share of split layers (measure_share()); not in files
  bool operator==(const ModelProfile&) const = default;
};

/// Costs of a step for that many rows: linear between measured sizes, and extrapolated from the two nearest beyond
/// them; never below 0.
struct StepCosts {
  std::vector<PartCost> parts;
  double loss = 0, update = 0, between = 0;  ///< update: per parameter
  double spread = 0;                         ///< of the durations, as Measured::spread
  bool extrapolated = false;                 ///< whether rows are beyond the measured sizes
};
StepCosts costs_at(const ModelProfile&, Index rows);
/// Standard deviation of the logarithm of a computation's duration, from the quartiles of log-normal durations: the
/// median over sizes, at most Cluster::most_jitter.
double jitter_of(const ModelProfile&);

/// Largest error of costs_at() for the sizes between the smallest and the largest, each predicted from the others, as a
/// share of the measured forward and backward; 0 for fewer than three sizes.
double heldout_error(const ModelProfile&);

/// A link with the measured calls. Other calls use a latency and a bandwidth from the smallest and the largest message.
Link link_of(const std::vector<MeasuredCall>&);

struct MachineProfile {
  /// Machine and software: "date", "host", "processor", "clock_mhz", "cores", "device", "transport", "library",
  /// "version".
  std::map<std::string, std::string> about = {};
  std::vector<ModelProfile> models = {};
  std::vector<MeasuredCall> calls = {};  ///< between ranks of this host
  double jitter = 0;                     ///< standard deviation of the logarithm of a computation's duration
  Measured load = {};                    ///< seconds per sample of a rank's loader, with workers; 0: not measured
  Measured fresh = {};       ///< seconds per byte of memory that is returned to the system and written again
  Measured vector_op = {};   ///< seconds per byte of each elementwise operation that mixes weights
  Measured checkpoint = {};  ///< seconds per byte written; 0: not measured
  bool operator==(const MachineProfile&) const = default;
};

}  // namespace trireme
