// Trainer: the complete training loop with checkpoints, evaluation, metrics and resume (like Lightning's Trainer or
// Keras's fit). It does what `trireme train` does, for custom models, losses and data.
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

/// Callbacks of a run. Each is called on every rank, in the thread that called run(), at the same points of the run
/// (on_step: for steps in which this rank takes part). Null: not called. An exception stops the run.
struct TrainerCallbacks {
  /// Called after a step, when its loss is known; on a GPU after the next step has started.
  std::function<void(const StepMetrics&)> on_step = {};
  /// Called after an epoch, before its evaluation.
  std::function<void(const EpochMetrics&)> on_epoch = {};
  /// Called after an epoch's evaluation, before its checkpoint, with equal numbers on every rank. If rank 0 returns
  /// false, the run ends (early stopping). A resumed run then ends, too, unless run.override is set. Checkpoints do not
  /// store a callback's own state.
  std::function<bool(const Evaluation&, const EpochMetrics&)> on_evaluation = {};
  /// Called when a checkpoint after `step` steps is being written. directory: set on rank 0; the checkpoint is complete
  /// when run() returns or on_save is called again.
  std::function<void(std::int64_t step, const std::string& directory)> on_save = {};
};

/// What to train. Empty members are made from the options; a custom model needs custom data sets, too.
struct TrainerInput {
  Module model = {};  ///< maps a batch's x to predictions; keeps its weights, which the Trainer moves to the device
  Dataset train =
              {},  ///< empty: the split "train" of data.name. Floating-point x of tensor data sets gets options.dtype
      test = {};   ///< empty: the split "test" of data.name. Samples of all must have a y
  /// Evaluated after each epoch in place of test, which is then evaluated once, at the end. Empty: the split
  /// "validation" if train is empty and data.validation_split above 0, else none.
  Dataset validation = {};
  Loss loss =
      {};  ///< loss of predictions and y; empty: cross-entropy with optim.label_smoothing, for data with classes
  std::optional<OptimizerConfig> optimizer = {};  ///< none: optim.name with its schedule
  std::optional<Strategy> strategy = {};          ///< none: parallel.strategy and norm_scope
  /// Metrics of evaluations, recorded as test_NAME. test_loss and, if predictions score classes, test_top1 (in %) are
  /// always recorded. With validation data, epochs record val_NAME, val_loss and val_top1.
  std::vector<Metric> metrics = {};
  /// LoaderOptions::collate of training and evaluation.
  Collate collate = {};
  Sampler sampler = {};             ///< LoaderOptions::sampler of training
  TrainerCallbacks callbacks = {};  ///< called during the run
  /// Called before each step on every rank. It returns "stop" to save without evaluation and end the run, "save" to
  /// save and continue, or "". If any rank asks, all act after the same step, within 8 steps. Null: not called, and no
  /// messages are sent for it.
  std::function<std::string()> request = {};
};

/// How a run() ended; test, stopped, steps and bad_images are the same on all ranks.
struct TrainerResult {
  Evaluation test;         ///< evaluation of the last step's weights
  bool stopped = false;    ///< whether TrainerInput::request stopped the run; within an epoch, test then has no samples
  std::int64_t steps = 0;  ///< optimizer steps of the run
  double seconds = 0;      ///< duration of this run() by this rank's clock; in virtual time, since the run began
  double sent = 0;         ///< bytes that the steps of this run() sent, summed over ranks
  /// Unreadable images that were replaced (data.on_bad = "skip"), summed over ranks; in virtual time, of rank 0's data
  /// sets, which the ranks share.
  Index bad_images = 0;
  std::string first_bad = {};   ///< error of this rank's first unreadable image; empty: none
  std::string checkpoint = {},  ///< rank 0: the newest checkpoint's directory; empty elsewhere
      metrics = {};             ///< rank 0: path of metrics.jsonl; empty elsewhere
};

/// Trains a model and writes a run directory (options.run.dir): config.toml, metrics.jsonl and metrics.csv (a line per
/// 20 steps and per epoch), classes.txt, checkpoints/ (framework/io/checkpoint.h) and, if asked for, TensorBoard's
/// event files. Only rank 0 writes it. Progress is printed to stderr, unless options.run.progress is "off".
class Trainer {
 public:
  /// Opens the data, creates the run directory and the Step. With options.run.resume it loads the newest checkpoint of
  /// options.run.dir. A collective call. Throws OptionError for invalid options. Throws Error for ranks that differ in
  /// options or data, and for a run directory that holds another run or cannot be written. Also throws Error for a
  /// resumed run with other settings, unless options.run.override is set.
  Trainer(TrainerInput, TrainerOptions, World&);
  ~Trainer();
  Trainer(const Trainer&) = delete;

  /// Trains from the current position to options.epochs or options.run.max_steps. Evaluates and saves after each epoch.
  /// A collective call. Throws Error with step and layer for a loss that is not finite, and Error for files that cannot
  /// be written. Earlier checkpoints remain.
  TrainerResult run();
  Step& step();  ///< the optimizer step that run() repeats, with model and state; it lives as long as the Trainer

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
