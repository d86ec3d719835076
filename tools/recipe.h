// From a Config to the objects it names.
#pragma once
#include "datasets/loader.h"
#include "framework/ops.h"
#include "framework/optimizer.h"
#include "models/models.h"
#include "parallel/strategy.h"
#include "tools/config.h"

namespace trireme {

/// The data set's split ("train" or "test"); training, limited by data.limit and with data.augment.
Dataset make_dataset(const Config&, const std::string& split);
/// Built for the data set's shape and classes, drawn from config.seed, in config.dtype.
Module make_model(const Config&, const Dataset&);
/// The learning rate as a function of the optimizer step.
Rate make_rate(const Config&, std::int64_t steps_per_epoch);
Loss make_loss(const Config&);
Recipe make_recipe(const Config&, std::int64_t steps_per_epoch);
Strategy make_strategy(const Config&, int ranks);
DType make_dtype(const Config&);

}  // namespace trireme
