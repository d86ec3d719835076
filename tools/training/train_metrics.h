// TrainMetrics: loss, accuracy and speed of the current epoch. A step's results are read after the next step has
// started, so that a device does not wait for the host.
#pragma once
#include <cmath>
#include <utility>
#include <vector>

#include "datasets/core/loader.h"
#include "framework/metrics/metric.h"
#include "framework/tensor/host_copy.h"
#include "parallel/runtime/step.h"
#include "tools/training/resume.h"
#include "tools/training/run_clock.h"
#include "tools/training/run_metrics.h"

namespace trireme {

/// The metrics of one rank.
class TrainMetrics {
 public:
  /// Adds sums to the run's progress `at`. Both must outlive this object.
  TrainMetrics(Progress& at, const RunClock& clock) : at_(at), clock_(clock) {}

  /// StepOptions::keep_outputs for run() with data of that many classes: the most likely classes. If predictions are
  /// not class scores (scores_classes()), one number per row, and there is no accuracy.
  StepOptions::KeepOutputs keep(Index classes);
  /// Replaces keep() for data without accuracy whose predictions should not be stored, such as a language model's:
  /// null. Rows are then not counted by their predictions.
  StepOptions::KeepOutputs keep_nothing() {
    keeps_ = false;
    return {};
  }
  /// A step's numbers on their way to the host.
  struct StepReport {
    HostCopy loss = {};                 ///< of the global batch, or of this rank's worker
    HostCopy predicted = {}, labels{};  ///< most likely classes, and labels, of the rows whose loss this rank computed
    Index predicted_rows = 0;           ///< number of these rows
    Index rows = 0, own = 0;            ///< rows of the global batches that begin with this step; rows on this rank
    bool apart = false;                 ///< whether the loss is of this rank's worker only
    StepMetrics metrics = {};           ///< the step's numbers
  };
  /// Call after StepTickets::open(): global batches begin at the current progress. batch: rows per global batch. size:
  /// samples per epoch.
  void open(Step&, Index batch, Index size);
  /// Runs the step on this rank's rows and moves the progress to the end of its global batch, unless it is there
  /// already. If workers divide batches, other ranks may have trained rows in between. A collective call.
  StepReport run(Step&, const Batch&);
  /// Moves the progress to the end of that many batches since open(), which all ranks together have trained.
  void close(Index batches);
  /// Drops this rank's counts since sum_ranks(), which are of steps that were discarded.
  void forget() {
    mine_ = {};
    uncounted_ = 0;
    guess_ = 0;
  }
  /// Adds a step's numbers to the epoch and returns them.
  StepMetrics add(StepReport);
  /// Adds the correct predictions of all ranks since the last call to the epoch, and the losses of workers that train
  /// separately. A collective call.
  void sum_ranks(const RankShare&, World&);
  /// In virtual time the epoch's time becomes that of the rank that ended its last step last. A collective call, which
  /// takes no simulated time. Call it after a flush.
  void take_latest(World&);

  /// Starts an epoch.
  void start_epoch() {
    start_ = clock_.now();
    waited_ = 0;
    samples_ = 0;
    steps_.clear();
  }
  /// Continues an epoch with that many trained samples, which began at `start` in virtual time.
  void resume_epoch(Nanoseconds start, Index samples) {
    start_ = start;
    samples_ = samples;
  }
  /// Start of the epoch.
  Nanoseconds epoch_start() const { return start_; }
  /// Adds time in which this rank waited for data.
  void waited(Nanoseconds time) { waited_ += time; }
  /// Adds the duration of a step.
  void took(Nanoseconds step) { steps_.push_back(static_cast<float>(seconds(step) * 1e3)); }
  /// The metrics of the epoch so far.
  EpochMetrics epoch() const;

 private:
  Index reach(Index batches);

  Progress& at_;
  Progress open_;               // progress at open()
  Index batch_ = 1, size_ = 0;  // of the batches since then
  Index classes_ = 0;
  bool keeps_ = true;    // whether keep() was called
  MetricState mine_;     // this rank's sums since sum_ranks(): correct predictions, labels; losses of separate workers
  Index uncounted_ = 0;  // rows of all ranks since then
  double guess_ = 0;     // estimated part of the epoch's loss for other ranks' rows since then
  bool leaves_out_ = false;  // workers may skip steps (Trigger::late), which have no predictions
  bool shares_ = false;      // workers share batches: late batches are trained again
  const RunClock& clock_;
  Nanoseconds start_ = 0, waited_ = 0;
  std::vector<float> steps_;  // duration of the epoch's steps in milliseconds
  Index samples_ = 0;         // of all ranks, since start_epoch()
  Nanoseconds passed_ = 0;    // from then to the last add()
};

}  // namespace trireme
