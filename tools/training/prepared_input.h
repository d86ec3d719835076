// PreparedInput: a TrainerInput with all defaults filled in, and the options with which ranks read it.
#pragma once
#include "datasets/core/loader.h"
#include "tools/training/trainer.h"

namespace trireme {

/// A complete TrainerInput.
struct PreparedInput : TrainerInput {
  std::string program;  ///< custom data sets, optimizer, sampler and metrics, one per line
};
/// Opens the data sets that the program has not given, the test set in a separate thread, since decompression is slow.
/// Floating-point x of tensor data sets gets the activations' type. Throws Error if there is no loss.
PreparedInput prepared_input(TrainerInput, const TrainerOptions&);
/// The validated options of a run of this input in this world, with the result for a strategy "auto". From then on
/// opening the run may take slow_phase times as long as a step.
TrainerOptions validated(TrainerOptions, const TrainerInput&, World&);
/// The Loader's options for this rank's training data.
LoaderOptions loader_options(const TrainerOptions&, const TrainerInput&, RankShare, Device);
Index epoch_size(const TrainerInput&);  ///< samples per epoch
/// One rank's rows, zeros or copies of the first sample, for measuring the costs of the model's parts.
Tensor make_example(const TrainerOptions&, const TrainerInput&, int ranks, Device);

}  // namespace trireme
