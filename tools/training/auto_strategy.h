// The setting parallel.strategy = "auto": before a run makes its model, its ranks measure costs, and rank 0 searches
// (strategy_search.h) for the mesh and strategy of the run.
#pragma once
#include "tools/training/trainer.h"
#include "tools/training/trainer_options.h"

namespace trireme {

/// Replaces a strategy "auto", and the mesh, by the result of the search and prints it. Among the strategies within the
/// band of the fastest, it takes the one with the fewest parts. A run resumed with the same number of ranks keeps its
/// mesh and strategy. A given mesh is kept. Models with running statistics get no micro-batches, since these change
/// batch norm. Throws Error for a custom model or strategy, in virtual time, and if nothing is found. A collective
/// call.
void choose_strategy(TrainerOptions&, const TrainerInput&, World&);

}  // namespace trireme
