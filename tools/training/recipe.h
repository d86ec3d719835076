// From a Config to the objects it names.
#pragma once
#include "datasets/core/loader.h"
#include "datasets/formats/datasets.h"
#include "framework/ops/ops.h"
#include "framework/optim/optimizer.h"
#include "models/registry/models.h"
#include "parallel/comm/world/mesh.h"
#include "parallel/strategies/strategy.h"
#include "tools/training/config.h"

namespace trireme {

/// What the settings say of the data set.
OpenOptions open_options(const Config&);
/// The data set's split ("train" or "test"); training, limited by data.limit and with data.augment.
Dataset make_dataset(const Config&, const std::string& split);
/// What ranks must agree on in a data set that each opened for itself: a line.
std::string description(const DatasetSource&);
/// Throws Error for data that so many ranks cannot share: fewer tar shards than ranks.
void check_shards(const Config&, int ranks);
/// What a model must be to learn the data set.
ModelOptions options_for(const DatasetSource&);
/// The config's model for that input and those classes, drawn from config.seed, with its weights on the device. They
/// are f32 under bf16 and f16 activations.
Module make_model(const Config&, ModelOptions, Device = cpu());
/// Where this rank computes: the GPU of its number among the ranks of this host, if the config wants one and there is
/// one. Throws Error where the config wants what is not there.
Device make_device(const Config&, int local_rank = 0);
/// The same for a rank, which tells its world (World::use). A collective call.
Device make_device(const Config&, World&);
/// The learning rate as a function of the optimizer step.
Schedule make_rate(const Config&, std::int64_t steps_per_epoch);
Loss make_loss(const Config&);
OptimizerConfig make_recipe(const Config&, std::int64_t steps_per_epoch);
Strategy make_strategy(const Config&, int ranks);
/// Ranks to start as threads: what the mesh multiplies to, or parallel.ranks.
int make_ranks(const Config&);
/// The config's mesh; without one, all ranks on the axis "data".
Mesh make_mesh(const Config&, World&);
DType make_dtype(const Config&);  ///< of activations
/// Throws ConfigError for the name of a recipe where a model's is wanted.
void check_model_name(const Config&);
/// The path of a settings file: as it is; or a bare name of a recipe that ships, "imagenet_resnet50". Throws
/// ConfigError with the list of those for a name of neither.
std::string find_config(const std::string& name);

}  // namespace trireme
