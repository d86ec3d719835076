// What a Trainer trains, once nothing of it is left empty, and how its ranks read it.
#pragma once
#include "datasets/core/loader.h"
#include "tools/training/trainer.h"

namespace trireme {

struct PreparedInput : TrainerInput {
  std::string program;  ///< what the program gave: data sets, optimizer, sampler, metrics; a line each
};
/// Opens the data sets that the program has not given, the test set in a thread of its own, since both are inflated;
/// floats of x of data sets of tensors come in the activations' type. Throws Error where there would be no loss.
PreparedInput prepared_input(TrainerInput, const TrainerOptions&);
/// The options of a run of this input in this world, validated, with a strategy "auto" chosen; opening it may take
/// slow_phase times as long as a step.
TrainerOptions validated(TrainerOptions, const TrainerInput&, World&);
/// How this rank reads the training set.
LoaderOptions loader_options(const TrainerOptions&, const TrainerInput&, RankShare, Device);
Index epoch_size(const TrainerInput&);  ///< samples of an epoch
/// One rank's rows, of zeros or of the first sample, on which the costs of the model's parts may be measured.
Tensor make_example(const TrainerOptions&, const TrainerInput&, int ranks, Device);

}  // namespace trireme
