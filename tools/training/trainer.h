// Trainer: trains a model from its first step to its last, with checkpoints, evaluation, metrics and resume: what
// `trireme train` does, for a program's own model, loss and data (as Lightning's Trainer, or Keras's fit).
//   Trainer trainer({.model = net, .train = Mnist("train"), .test = Mnist("test")}, {.epochs = 2}, world);
//   trainer.run();
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "datasets/core/loader.h"
#include "framework/layers/module.h"
#include "framework/metrics/metric.h"
#include "framework/ops/ops.h"
#include "framework/optim/optimizer.h"
#include "parallel/comm/world/world.h"
#include "parallel/runtime/step.h"
#include "tools/training/evaluate.h"
#include "tools/training/run_metrics.h"
#include "tools/training/trainer_options.h"

namespace trireme {

/// What a run tells a program as it goes. All are called on every rank, in the thread that called run(), at the same
/// places of the run (on_step: of steps that this rank has part in); null: nobody asks. What they throw ends the run.
struct TrainerCallbacks {
  /// After a step, once its loss is known: on a GPU when the next one has been started.
  std::function<void(const StepMetrics&)> on_step = {};
  /// After an epoch, before its evaluation.
  std::function<void(const EpochMetrics&)> on_epoch = {};
  /// After an epoch's evaluation, before its checkpoint: the same numbers on every rank. False, from rank 0, ends the
  /// run as if its epochs were over (early stopping), for runs that go on from there, too, but with run.override. What
  /// a call-back keeps is the program's to keep.
  std::function<bool(const Evaluation&, const EpochMetrics&)> on_evaluation = {};
  /// When a checkpoint of the weights behind so many steps is written; rank 0 names its directory, in which it is
  /// complete once run() returns or on_save is called again.
  std::function<void(std::int64_t step, const std::string& directory)> on_save = {};
};

/// What a program trains: any model, loss and data. What is left empty is made as the options name it; a model of the
/// program's own wants its own data sets, too.
struct TrainerInput {
  Module model = {};   ///< from a batch's x to a prediction, with its weights as they are; the Trainer moves them
  Dataset train = {},  ///< empty: the split "train" of data.name. Of tensors: floats of x come as options.dtype
      test = {};       ///< empty: the split "test" of data.name. Samples of both have a y
  Loss loss = {};      ///< of predictions and y; empty: cross-entropy with optim.label_smoothing, of data with classes
  std::optional<OptimizerConfig> optimizer = {};  ///< none: optim.name with its schedule
  std::optional<Strategy> strategy = {};          ///< none: parallel.strategy and norm_scope
  /// Of evaluations: their results are recorded as test_NAME beside test_loss and, where predictions score classes,
  /// test_top1, which is in %.
  std::vector<Metric> metrics = {};
  /// LoaderOptions::collate of training and evaluation, and LoaderOptions::sampler of training.
  Collate collate = {};
  Sampler sampler = {};
  TrainerCallbacks callbacks = {};
  /// Asked before each step, on every rank: "stop" to end the run behind a step, which is saved and not evaluated;
  /// "save" to save one and go on; "" for neither. One rank's word is enough: all act behind the same step, within 8.
  /// Null: nobody is asked, and nothing is sent for it.
  std::function<std::string()> request = {};
};

/// How a run() ended; test, stopped, steps and bad_images are the same on all ranks.
struct TrainerResult {
  Evaluation test;         ///< of the last step's weights
  bool stopped = false;    ///< TrainerInput::request asked for it; in mid-epoch test has no samples then
  std::int64_t steps = 0;  ///< optimizer steps in all
  double seconds = 0;      ///< of this run(), by this rank's clock; in virtual time since the run began
  double sent = 0;         ///< bytes that the steps of this run() sent, of all ranks
  /// Reads that another image answered (data.on_bad = "skip"), of all ranks; in virtual time of rank 0's data sets,
  /// which the ranks are to share.
  Index bad_images = 0;
  std::string first_bad = {};   ///< of this rank: why; empty: none
  std::string checkpoint = {},  ///< rank 0: the newest checkpoint's directory; empty elsewhere
      metrics = {};             ///< rank 0: path of metrics.jsonl; empty elsewhere
};

/// A run directory (options.run.dir) holds config.toml, metrics.jsonl and metrics.csv (a line per 20 steps and per
/// epoch), classes.txt, checkpoints/ (framework/io/checkpoint.h) and, if asked for, TensorBoard's event files. Only
/// rank 0 touches it. Progress goes to stderr, unless options.run.progress is "off".
class Trainer {
 public:
  /// Opens the data, makes the run directory and the Step; with options.run.resume restores the newest checkpoint of
  /// options.run.dir. A collective call. Throws OptionError for options that cannot be, and Error where ranks differ in
  /// their options or data, for a run directory that holds another run or cannot be written, and for a run that was
  /// started with other settings (each is named; options.run.override lets it pass).
  Trainer(TrainerInput, TrainerOptions, World&);
  ~Trainer();
  Trainer(const Trainer&) = delete;

  /// Trains from where the run stands to options.epochs or options.run.max_steps. Evaluates and saves after each epoch.
  /// A collective call. Throws Error for a loss that is not finite (naming step and layer) and what cannot be written;
  /// the checkpoints up to then stay.
  TrainerResult run();
  Step& step();  ///< the optimizer step that run() repeats, with model and state; lives as long as the Trainer

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
