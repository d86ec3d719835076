// The all-reduce algorithms of a run: parallel.allreduce. For "auto" a table that is measured when a run begins, stands
// in its directory and is used again when the run is resumed, so that the sums have the same bits.
#pragma once
#include <string>

#include "parallel/comm/world/world.h"
#include "tools/training/trainer_options.h"

namespace trireme {

struct RunAlgorithms {
  std::string table;  ///< AlgorithmTable as text, for RunDir::keep_algorithms; empty unless measured
  std::string note;   ///< what to tell of a run that is resumed; mostly empty
};
/// Gives the world its all-reduce. "auto" on several ranks: by algorithms.txt of the run that is resumed, as rank 0
/// reads it; where there is none, or one of another number of ranks, by a new measurement. A collective call. Throws
/// Error for a table that cannot be read.
RunAlgorithms use_all_reduce(const TrainerOptions&, World&);

}  // namespace trireme
