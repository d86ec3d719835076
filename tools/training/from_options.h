// Builds the objects that TrainerOptions name: model, data sets, optimizer, strategy, device.
#pragma once
#include "datasets/core/loader.h"
#include "datasets/formats/open_dataset.h"
#include "framework/metrics/metric.h"
#include "framework/ops/ops.h"
#include "framework/optim/optimizer.h"
#include "models/registry/models.h"
#include "parallel/comm/cluster.h"
#include "parallel/comm/world/mesh.h"
#include "parallel/runtime/step.h"
#include "parallel/strategies/strategy.h"
#include "tools/training/console.h"
#include "tools/training/evaluate.h"
#include "tools/training/trainer_options.h"

namespace trireme {

/// The usual input and classes of the named model, with images of data.image_size if set.
ModelOptions usual_options(const TrainerOptions&);
/// Tokens per text sample: data.context, else arch.positions, else the model's usual number.
Index context_of(const TrainerOptions&);
/// Synthetic samples of that shape: pictures, or for a language model ids with the following ids as targets.
Dataset synthetic_data(const TrainerOptions&, const ModelOptions& shape, Index samples);
/// The options for opening the named data set.
OpenOptions open_options(const TrainerOptions&);
/// The named data set's split "train" (the first data.limit samples, augmented by data.augment), "validation" or
/// "test"; floating-point x of tensor data sets has the type of make_dtype(). Throws Error with the list for an unknown
/// name, and for missing or damaged files.
Dataset make_dataset(const TrainerOptions&, const std::string& split);
/// A line with name, samples, shape and classes, for comparison between ranks, each of which opens the data set.
std::string description(const DatasetSource&);
/// Throws Error for data that this number of ranks cannot share: fewer tar shards than ranks.
void check_shards(const TrainerOptions&, int ranks);
/// Whether samples are crops of volumes, with a number or label per voxel: data.name is phantoms or volumes.
bool takes_volumes(const TrainerOptions&);
/// Input shape and classes of a model for the data set; without classes, the channels of y.
ModelOptions options_for(const DatasetSource&);
/// The named model for this input and these classes, initialised from the seed and moved to the device.
Module make_model(const TrainerOptions&, ModelOptions, Device = cpu());
/// As make_model(), with uninitialised weights, for uses that need only shapes.
Module make_undrawn_model(const TrainerOptions&, ModelOptions, Device = cpu());
/// Moves the weights to the device, as f64 if dtype is f64, else as f32.
void move_to(Module&, const TrainerOptions&, Device);
/// The Loader's options for this rank's training data.
LoaderOptions loader_options(const TrainerOptions&, RankShare, Device);
/// Seed, loss scale and OptimizerOptions of every program that makes a Step.
StepOptions step_options(const TrainerOptions&);
/// FlagOptions::every: 1 for long steps, 10 for short ones, in which an exchange costs up to a tenth of the step. Equal
/// on all ranks; example: shape of a rank's rows.
int steps_between_flags(Module&, const Tensor& example);
/// Checks every run.finite_steps, or in every step of a run with rollback. All steps that are recorded (record_every)
/// check gradients.
FiniteChecks finite_checks(const TrainerOptions&, int steps_between_flags);
/// The options of evaluate() for the test set; progress goes to the console, which must outlive the result.
EvaluateOptions evaluate_options(const TrainerOptions&, Device, Console&, Index samples);
/// The device of this rank: the GPU with its local rank, if the options allow one and it exists. Throws Error if the
/// requested device does not exist.
Device make_device(const TrainerOptions&, int local_rank = 0);
/// As above for this rank; also calls World::use(). A collective call.
Device make_device(const TrainerOptions&, World&);
/// The learning rate as a function of the optimizer step, with warm-up (Goyal et al., arXiv 1706.02677).
Schedule make_schedule(const TrainerOptions&, std::int64_t steps_per_epoch);
/// Metrics of evaluations besides the loss: Dice and MeanIoU for segmentation of volumes, RegressionErrors for
/// denoising, else none.
std::vector<Metric> make_metrics(const TrainerOptions&, const DatasetSource&);
/// Cross-entropy, with label smoothing (Szegedy et al., arXiv 1512.00567) and z-loss (LabelLossOptions::z_loss) if they
/// are set; mse_loss() for denoising of volumes.
Loss make_loss(const TrainerOptions&);
/// The named optimizer with its settings and schedule.
OptimizerConfig make_optimizer(const TrainerOptions&, std::int64_t steps_per_epoch);
/// parallel.strategy; if it is empty, data_parallel for several ranks, else serial. Throws Error for an unknown name.
Strategy make_strategy(const TrainerOptions&, int ranks);
/// The machines of a run in virtual time: from the text kept (kept_cluster), else from parallel.cluster. If both are
/// empty, one device per rank of parallel.virtual with 1e11 floating-point operations per second and links of 10 us and
/// 10^10 bytes per second. Throws OptionError for an unreadable file, settings that virtual time does not support, and
/// too few devices.
Cluster make_cluster(const TrainerOptions&, const std::string& kept = {});
/// Number of ranks to start as threads: the product of the mesh, else parallel.ranks.
int make_ranks(const TrainerOptions&);
/// Binds this rank (parallel.bind) and sets the threads of its kernels (parallel.threads). Returns its CPUs; empty: not
/// bound (World::bind).
std::string use_threads(const TrainerOptions&, World&);
/// The mesh; without one, all ranks on the axis "data".
Mesh make_mesh(const TrainerOptions&, World&);
DType make_dtype(const TrainerOptions&);  ///< type of activations

}  // namespace trireme
