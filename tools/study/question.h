// Question: what the runs of a folder answer: a scaling study (study.h), or a search of hyper-parameters. A search
// reads the parameters that it varies ([space], each a setting of `trireme train`) and its options ([tune]).
//
//   [tune]
//   algorithm = "asha"          # random, sobol, grid, tpe, asha, pbt
//   objective = "val_top1"      # of metrics.jsonl's evaluations; with a minus, if the smaller is better: "-test_loss"
//   trials = 40
//   epochs = 9
//   [space]
//   "optim.lr" = {type = "log", low = 1e-4, high = 0.1}
//   "optim.name" = {type = "choice", values = ["adam", "sgd"]}
//   "optim.momentum" = {type = "uniform", low = 0.5, high = 0.99, only_if = {"optim.name" = "sgd"}}
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/study/ledger.h"
#include "tools/study/space.h"
#include "tools/study/study.h"
#include "tools/training/trainer_options.h"

namespace trireme {

struct TuneOptions {
  std::string algorithm = "random";
  /// Key of an evaluation; "-KEY" if lower is better. Empty: val_top1 if the training has a validation split, else
  /// test_top1.
  std::string objective = {};
  std::int64_t trials = 0;           ///< in all; pbt: size of the population; 0: 20, or all points of a grid
  std::int64_t epochs = 0;           ///< most epochs of a trial; 0: the training's
  std::int64_t min_epochs = 1;       ///< asha: epochs of the first rung; pbt: between replacements; median rule:
                                     ///< before it applies
  int eta = 3;                       ///< asha: one of eta trials is promoted
  std::int64_t seed = 1;             ///< of the points
  int parallel = 1;                  ///< simultaneous trials on this host
  int ranks = 0;                     ///< per trial; 0: the training's
  std::string launcher = "threads";  ///< how ranks are started: threads, mpiexec, srun
  bool median_stop = false;          ///< stop trials that are worse than the median of the others
  int startup = 10;                  ///< tpe: random trials at the start; median rule: finished trials that it needs
  double quantile = 0.2;             ///< pbt: share of trials that are replaced, and share of their models
  int retries = 3;                   ///< restarts of a trial whose process was killed
  double lease = 60;                 ///< seconds without a heartbeat after which another worker takes a trial
  bool operator==(const TuneOptions&) const = default;

  std::string key() const { return objective.substr(objective.starts_with('-')); }
  double sign() const { return objective.starts_with('-') ? -1 : 1; }
};

/// What the runs of a folder are to answer.
struct Question {
  TuneOptions options = {};
  Space space = Space();
  /// A scaling study: a grid of the parameters "cell" and "seed". None: a search of hyper-parameters.
  std::optional<StudyQuestion> study = {};
  /// The ledger's line of a trial's process: run, cell, scaling, strategy, mesh, ranks, seed; config_hash of a study.
  LedgerEntry entry(int trial, const Point&) const;
};
/// The question of a scaling study.
Question question_of(StudyQuestion);
/// Reads a search, or a scaling study: without [tune] and [space].
Question parse_question(const std::string& toml, const std::string& source);

/// The options of [tune].
std::vector<Option> option_table(TuneOptions&);
/// Reads [tune] and [space]. Throws OptionError with file and line for an invalid file, and for a parameter with an
/// empty range.
Question parse_tune(const std::string& toml, const std::string& source);
/// Text that parse_tune() reads as the same question.
std::string to_toml(const Question&);

/// Applies a point to the settings. Throws OptionError for invalid settings.
TrainerOptions settings_at(const Space&, const Point&, TrainerOptions);
/// Completes the options from the training's settings. Throws OptionError for parameters and objectives that the
/// training does not have, for objectives of the wrong sign, and for searches that cannot finish.
void complete(Question&, const TrainerOptions&);
/// A sentence if a complete question has fewer trials than its grid has points; else "".
std::string left_out_of_grid(const Question&);

}  // namespace trireme
