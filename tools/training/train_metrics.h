// TrainMetrics: loss, accuracy and speed of the epoch that is being trained. What a step computes is read after the
// next one has been started, so that a device need not wait for the host.
#pragma once
#include <cmath>
#include <utility>
#include <vector>

#include "datasets/core/loader.h"
#include "framework/tensor/host_copy.h"
#include "parallel/runtime/step.h"
#include "tools/training/counts.h"
#include "tools/training/resume.h"
#include "tools/training/run_clock.h"

namespace trireme {

/// Of an epoch so far; the speed is that of the part trained by this process, in virtual time of the whole.
struct EpochMetrics {
  double loss = 0, accuracy = 0;  ///< mean over the samples; % of them (before sum_ranks(): as of its last call)
  double images_per_s = 0;        ///< of all ranks; simulated seconds in virtual time
  double wait_share = 0;          ///< of the time, in which rank 0 waited for data: 0 to 1
  Index steps = 0;                ///< of this rank
  /// Milliseconds of these, data and messages included: mean, median, the 95th percentile, the longest.
  double step_mean = 0, step_p50 = 0, step_p95 = 0, step_max = 0;
};
struct StepMetrics {
  double loss = 0, lr = 0;
  double grad_norm = NAN;            ///< Step::grad_norm() of the newest step that has one
  std::int64_t step = 0, batch = 0;  ///< optimizer steps in all, batches of this epoch, this one included
};

class TrainMetrics {
 public:
  /// Sums go to the progress of the run. Both must outlive this.
  TrainMetrics(Progress& at, const RunClock& clock) : at_(at), clock_(clock) {}

  /// The loss, which also keeps the likeliest class and the label of each row that this rank computes it for.
  Loss watching(const Loss&);
  /// A step's numbers on their way to the host.
  struct StepReport {
    HostCopy loss = {};                                           ///< of the global batch, or of this rank's worker
    std::vector<std::pair<HostCopy, HostCopy>> predictions = {};  ///< likeliest classes and labels, by micro-batch
    Index rows = 0, own = 0;  ///< of the global batches that begin with it, on this rank
    bool apart = false;       ///< the loss is this rank's worker's
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
  void forget() { kept_.clear(), mine_ = {}, uncounted_ = 0, guess_ = 0; }
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
  Progress open_;                                // at open()
  Index batch_ = 1, size_ = 0;                   // of the batches since then
  std::vector<std::pair<Tensor, Tensor>> kept_;  // likeliest classes and labels of the step under way
  Counts mine_;                                  // this rank's rows since sum_ranks()
  Index uncounted_ = 0;                          // all ranks' rows since then
  double guess_ = 0;                             // what the epoch's loss has for others' losses since then
  bool leaves_out_ = false;                      // workers may leave steps out (Trigger::late): these predict nothing
  bool shares_ = false;                          // workers share batches: what comes late is trained again
  const RunClock& clock_;
  Nanoseconds start_ = 0, waited_ = 0;
  std::vector<float> steps_;  // milliseconds, of the epoch
  Index samples_ = 0;         // of all ranks, since start_epoch()
  double norm_ = NAN;         // of the gradient, when it was last known
  Nanoseconds passed_ = 0;    // from then to the last add()
};

}  // namespace trireme
