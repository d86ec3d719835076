// Prediction: compares the predicted duration of a run's steps, from measurements of its parts on this machine, with
// the actual duration. It is printed when the run ends and stored as prediction.json in its directory.
#pragma once
#include <optional>
#include <vector>

#include "parallel/profile/predict.h"
#include "parallel/runtime/step.h"
#include "tools/training/prepared_input.h"
#include "tools/training/run_log.h"

namespace trireme {

/// The prediction of one rank. It supports only runs of several ranks on CPUs in real time whose steps do not depend on
/// the order of messages.
class Prediction {
 public:
  /// program: whether the model is custom; a custom model cannot be built again for measurement.
  Prediction(const TrainerOptions&, World&, const Step&, Device, bool program);
  /// Call before each step, after its data are loaded. Some steps are recorded, with decreasing frequency.
  void before(Step&);
  /// Call after each step. After recorded steps the ranks gather their timelines.
  void after(Step&);
  /// Measures the model's parts on this rank's part of a micro-batch, on all ranks at the same time, and prints the
  /// result. Skipped if it would take more than 4 s and more than a twentieth of the run. A collective call.
  void finish(Mesh&, Step&, const TrainerInput&, RunLog&);

 private:
  bool looks() const { return on_ && why_never_.empty(); }
  bool is_looked_at() const;
  /// Repetitions of each measurement, from the seconds of a step; 1: too few for a prediction.
  int runs_within_bounds(const Step&, double seconds) const;
  std::string why_not_measured(Step&, int runs) const;
  StepTimes measure(Mesh&, Step&, const TrainerInput&, int runs) const;

  const TrainerOptions& options_;
  World& world_;
  const Device device_;
  const bool program_;
  bool on_ = false;              // requested, with several ranks, in real time
  std::string why_never_;        // why no step is predicted; empty: it is
  const double load_;            // load_per_core() before the run
  std::int64_t steps_ = 0;       // so far
  double begun_ = 0, ran_ = 0;   // seconds of the steady clock: start of the current step; sum over steps
  std::vector<double> seconds_;  // of steps that were not recorded
  std::vector<StepTimes> times_;
};

}  // namespace trireme
