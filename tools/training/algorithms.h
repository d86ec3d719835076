// The all-reduce algorithms of a run (setting parallel.allreduce). "auto" measures a table when a run begins and stores
// it in the run's directory. A resumed run uses the same table, so that sums have the same bits.
#pragma once
#include <string>

#include "parallel/comm/world/world.h"
#include "tools/training/trainer_options.h"

namespace trireme {

/// The result of use_all_reduce().
struct RunAlgorithms {
  std::string table;  ///< AlgorithmTable as text, for RunDir::keep_algorithms; empty unless measured
  std::string note;   ///< a note to print for a resumed run; usually empty
};
/// Sets the world's all-reduce. "auto" on several ranks uses algorithms.txt of the resumed run, which rank 0 reads. If
/// it is missing or for another number of ranks, the ranks measure a new table. A collective call. Throws Error for a
/// table that cannot be read.
RunAlgorithms use_all_reduce(const TrainerOptions&, World&);

}  // namespace trireme
