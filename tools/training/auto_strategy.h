// parallel.strategy auto: before a run makes its model, its ranks measure what they need and rank 0 searches
// (strategy_search.h) for the mesh and strategy that the run then has, as if they had been given.
#pragma once
#include "tools/training/trainer.h"
#include "tools/training/trainer_options.h"

namespace trireme {

/// Where the settings' strategy is "auto", replaces it and the mesh by what is found, and says so: of the
/// strategies that lie within the band of the fastest the one with the fewest pieces; by those of the run where it goes
/// on with as many ranks. A mesh that is given stays, of a run that goes on, too. Of models with running statistics,
/// whose batch norms see micro-batches, batches are not divided into such. Throws Error for a program's own model or
/// strategy, in virtual time, and where nothing is found. A collective call.
void choose_strategy(TrainerOptions&, const TrainerInput&, World&);

}  // namespace trireme
