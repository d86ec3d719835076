// From TrainerOptions to the objects that they name: model, data sets, optimizer, strategy, device.
#pragma once
#include "datasets/core/loader.h"
#include "datasets/formats/open_dataset.h"
#include "framework/metrics/metric.h"
#include "framework/ops/ops.h"
#include "framework/optim/optimizer.h"
#include "models/registry/models.h"
#include "parallel/comm/cluster.h"
#include "parallel/comm/world/mesh.h"
#include "parallel/strategies/strategy.h"
#include "tools/training/console.h"
#include "tools/training/evaluate.h"
#include "tools/training/trainer_options.h"

namespace trireme {

/// The named model's usual input and classes, images of data.image_size if that is set.
ModelOptions usual_options(const TrainerOptions&);
/// Tokens of a sample of text: data.context, arch.positions or the model's usual.
Index context_of(const TrainerOptions&);
/// Made-up samples of that shape for the model: pictures, or of a language model ids, each with those that follow.
Dataset synthetic_data(const TrainerOptions&, const ModelOptions& shape, Index samples);
/// How the named data set is opened.
OpenOptions open_options(const TrainerOptions&);
/// The named data set's split "train" (the first data.limit samples, augmented by data.augment) or "test"; floats of x
/// of data sets of tensors in the type of make_dtype(). Throws Error for a name that there is not (with the list), and
/// for files that are missing or damaged.
Dataset make_dataset(const TrainerOptions&, const std::string& split);
/// A line to compare across ranks, each of which opens the data set for itself: name, samples, shape, classes.
std::string description(const DatasetSource&);
/// Throws Error for data that so many ranks cannot share: fewer tar shards than ranks.
void check_shards(const TrainerOptions&, int ranks);
/// Whether samples are crops of volumes, with a number or label per voxel: data.name is phantoms or volumes.
bool takes_volumes(const TrainerOptions&);
/// Input shape and classes of a model for the data set; of one without classes, the channels of its y.
ModelOptions options_for(const DatasetSource&);
/// The named model for that input and those classes, drawn from the seed, and moved to the device.
Module make_model(const TrainerOptions&, ModelOptions, Device = cpu());
/// The same with weights that are not drawn, for what asks of shapes alone.
Module make_undrawn_model(const TrainerOptions&, ModelOptions, Device = cpu());
/// Brings the weights to the device, in f64 if that is the dtype, else in f32, whatever the activations are.
void move_to(Module&, const TrainerOptions&, Device);
/// How this rank reads the training set.
LoaderOptions loader_options(const TrainerOptions&, RankShare, Device);
/// Ranks that tell each other something wait for each other. Where a step is short that costs up to a tenth of it, and
/// 10 steps pass soon, and gradients are looked at in all steps that are recorded (record_every); a long one does it
/// each time. Alike on all ranks, whose rows have the shape of the example.
int steps_between_flags(Module&, const Tensor& example);
/// StepOptions::finite_every: run.finite_steps, or each step of a run that rolls back.
int finite_every(const TrainerOptions&, int steps_between_flags);
/// How the test set is read; progress goes to the console, which must outlive the result.
EvaluateOptions evaluate_options(const TrainerOptions&, Device, Console&, Index samples);
/// Where this rank computes: the GPU of its number among the ranks of this host, if the options want one and there is
/// one. Throws Error where they want what is not there.
Device make_device(const TrainerOptions&, int local_rank = 0);
/// The same for a rank, which tells its world (World::use). A collective call.
Device make_device(const TrainerOptions&, World&);
/// The learning rate as a function of the optimizer step, with warm-up (Goyal et al., arXiv 1706.02677).
Schedule make_schedule(const TrainerOptions&, std::int64_t steps_per_epoch);
/// What evaluations measure beside the loss: of volumes to segment Dice and MeanIoU, to denoise RegressionErrors; else
/// nothing.
std::vector<Metric> make_metrics(const TrainerOptions&, const DatasetSource&);
/// Cross-entropy, with label smoothing (Szegedy et al., arXiv 1512.00567) if it is set; of volumes to denoise
/// mse_loss().
Loss make_loss(const TrainerOptions&);
OptimizerConfig make_optimizer(const TrainerOptions&, std::int64_t steps_per_epoch);
/// parallel.strategy or, where that is empty, data_parallel for several ranks. Throws Error for an unknown one.
Strategy make_strategy(const TrainerOptions&, int ranks);
/// The machines of a run in virtual time: of the file kept (kept_cluster), else parallel.cluster's or, where that is
/// empty, one with a device per rank of parallel.virtual: 1e11 floating-point operations per second each, links of 10
/// us and 10^10 bytes per second. Throws OptionError for a file that cannot be read, settings that virtual time does
/// not go with, and too few devices.
Cluster make_cluster(const TrainerOptions&, const std::string& kept = {});
/// Ranks to start as threads: what the mesh multiplies to, or parallel.ranks.
int make_ranks(const TrainerOptions&);
/// The mesh; without one, all ranks on the axis "data".
Mesh make_mesh(const TrainerOptions&, World&);
DType make_dtype(const TrainerOptions&);  ///< of activations

}  // namespace trireme
