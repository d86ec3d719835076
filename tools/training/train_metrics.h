// TrainMetrics: loss, accuracy and speed of the epoch that is being trained. What a step computes is read after the
// next one has been started, so that a device need not wait for the host.
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

class TrainMetrics {
 public:
  /// Sums go to the progress of the run. Both must outlive this.
  TrainMetrics(Progress& at, const RunClock& clock) : at_(at), clock_(clock) {}

  /// StepOptions::keep_outputs for run(), of data with so many classes: the likeliest ones; where predictions score no
  /// classes (scores_classes()), which have no accuracy, one number per row.
  StepOptions::KeepOutputs keep(Index classes);
  /// In its place, of data without accuracy whose predictions are better not made whole, a language model's: null, and
  /// rows are not counted a second time by their predictions.
  StepOptions::KeepOutputs keep_nothing() {
    keeps_ = false;
    return {};
  }
  /// A step's numbers on their way to the host.
  struct StepReport {
    HostCopy loss = {};                 ///< of the global batch, or of this rank's worker
    HostCopy predicted = {}, labels{};  ///< likeliest classes and labels of the rows whose loss this rank computed
    Index predicted_rows = 0;           ///< these
    Index rows = 0, own = 0;            ///< of the global batches that begin with it, on this rank
    bool apart = false;                 ///< the loss is this rank's worker's
    StepMetrics metrics = {};
  };
  /// Global batches begin where the progress stands (Step::open()). batch: rows of one of them. size: samples of an
  /// epoch.
  void open(const Step&, Index batch, Index size);
  /// Runs the step on this rank's rows. The progress comes to behind its global batch, if it has not yet: where workers
  /// share batches, others may have trained the rows between. A collective call.
  StepReport run(Step&, const Batch&);
  /// The progress comes to behind so many batches since open(), which all ranks together have trained.
  void close(Index batches);
  /// What this rank has counted since sum_ranks() is of steps that do not count.
  void forget() { mine_ = {}, uncounted_ = 0, guess_ = 0; }
  /// Adds a step's numbers to the epoch's, and returns them.
  StepMetrics add(StepReport);
  /// Adds the correct predictions of all ranks since the last call to those of the epoch, and the losses of workers
  /// that train apart. A collective call.
  void sum_ranks(const RankShare&, World&);

  void start_epoch() { start_ = clock_.now(), waited_ = 0, samples_ = 0, steps_.clear(); }
  /// Goes on with one of which so many samples were trained since `start`, which is in virtual time.
  void resume_epoch(Nanoseconds start, Index samples) { start_ = start, samples_ = samples; }
  Nanoseconds epoch_start() const { return start_; }
  void waited(Nanoseconds time) { waited_ += time; }
  void took(Nanoseconds step) { steps_.push_back(static_cast<float>(seconds(step) * 1e3)); }
  EpochMetrics epoch() const;

 private:
  Index reach(Index batches);

  Progress& at_;
  Progress open_;               // at open()
  Index batch_ = 1, size_ = 0;  // of the batches since then
  Index classes_ = 0;
  bool keeps_ = true;    // keep() was asked
  MetricState mine_;     // this rank's since sum_ranks(): right predictions, labels; losses of those that train apart
  Index uncounted_ = 0;  // all ranks' rows since then
  double guess_ = 0;     // what the epoch's loss has for others' losses since then
  bool leaves_out_ = false;  // workers may leave steps out (Trigger::late): these predict nothing
  bool shares_ = false;      // workers share batches: what comes late is trained again
  const RunClock& clock_;
  Nanoseconds start_ = 0, waited_ = 0;
  std::vector<float> steps_;  // milliseconds, of the epoch
  Index samples_ = 0;         // of all ranks, since start_epoch()
  Nanoseconds passed_ = 0;    // from then to the last add()
};

}  // namespace trireme
