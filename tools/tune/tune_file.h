// space.toml: what a search varies ([space], a setting of `trireme train` each) and how it searches ([tune]).
//
//   [tune]
//   algorithm = "asha"          # random, sobol, grid, tpe, asha, pbt
//   objective = "test_top1"     # of metrics.jsonl's evaluations; with a minus, if the smaller is better: "-test_loss"
//   trials = 40
//   epochs = 9
//   [space]
//   "optim.lr" = {type = "log", low = 1e-4, high = 0.1}
//   "optim.name" = {type = "choice", values = ["adam", "sgd"]}
//   "optim.momentum" = {type = "uniform", low = 0.5, high = 0.99, only_if = {"optim.name" = "sgd"}}
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tools/training/trainer_options.h"
#include "tools/tune/space.h"

namespace trireme {

struct TuneOptions {
  std::string algorithm = "random";
  std::string objective = "test_top1";  ///< key of an evaluation; "-KEY": the lower is better
  std::int64_t trials = 0;              ///< in all; of pbt the size of the population; 0: 20, of grid all points
  std::int64_t epochs = 0;              ///< most of a trial; 0: those of the training
  std::int64_t min_epochs = 1;          ///< of asha's first rung; between two looks of pbt; before the median rule
  int eta = 3;                          ///< asha: one in so many is promoted
  std::int64_t seed = 1;                ///< of the points
  int parallel = 1;                     ///< trials at once on this host
  int ranks = 0;                        ///< of a trial; 0: those of the training
  std::string launcher = "threads";     ///< what ranks are started by: threads, mpiexec, srun
  bool median_stop = false;             ///< end trials that are worse than the median of the others
  int startup = 10;                     ///< tpe: random trials first; median rule: trials that must have ended
  double quantile = 0.2;                ///< pbt: share that is replaced, and share that replaces it
  int retries = 3;                      ///< times that a trial whose process was killed goes on
  double lease = 60;                    ///< seconds without a sign of life after which another worker takes a trial
  bool operator==(const TuneOptions&) const = default;

  std::string key() const { return objective.substr(objective.starts_with('-')); }
  double sign() const { return objective.starts_with('-') ? -1 : 1; }
};

struct TuneQuestion {
  TuneOptions options = {};
  Space space = Space();
};

/// A row per option of [tune].
std::vector<Option> option_table(TuneOptions&);
/// Throws OptionError with file and line for what is no such file, and for a space with no room.
TuneQuestion parse_tune(const std::string& toml, const std::string& source);
/// What parse_tune() reads as the same.
std::string to_toml(const TuneQuestion&);

/// A point's settings over others. Throws OptionError for what they cannot be.
TrainerOptions settings_at(const Space&, const Point&, TrainerOptions);
/// Completes the options by the training's settings. Throws OptionError for parameters and objectives that a training
/// cannot have, for objectives of the wrong sign, and for searches that cannot come to an end.
void complete(TuneQuestion&, const TrainerOptions&);
/// In words, that a complete question has fewer trials than its grid has points; empty: it has not.
std::string left_out_of_grid(const TuneQuestion&);

}  // namespace trireme
