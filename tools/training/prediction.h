// Prediction: what a step of a run was to take by what its pieces take on this machine, beside what it took: printed
// when the run ends, and kept as prediction.json in its directory.
#pragma once
#include <optional>
#include <vector>

#include "parallel/profile/predict.h"
#include "parallel/runtime/step.h"
#include "tools/training/prepared_input.h"
#include "tools/training/run_log.h"

namespace trireme {

/// Of one rank. Only runs are looked at whose ranks, several, are on CPUs in real time, and whose steps do not depend
/// on the order in which messages come.
class Prediction {
 public:
  /// program: whether the model is the program's own, which cannot be made anew to be measured.
  Prediction(const TrainerOptions&, World&, const Step&, Device, bool program);
  /// Around each step, without its data. Some are recorded, fewer and fewer; behind these all ranks put their
  /// timelines together.
  void before(Step&);
  void after(Step&);
  /// Measures the model's pieces on this rank's part of a micro-batch, on all ranks at the same time, unless that
  /// would take more than 4 s, and than a twentieth of the run, and tells. A collective call.
  void finish(Mesh&, Step&, const TrainerInput&, RunLog&);

 private:
  bool looks() const { return on_ && why_never_.empty(); }
  bool is_looked_at() const;
  /// How often each piece is to be measured after steps of so many seconds; 1: not often enough.
  int runs_within_bounds(const Step&, double seconds) const;
  std::string why_not_measured(Step&, int runs) const;
  StepTimes measure(Mesh&, Step&, const TrainerInput&, int runs) const;

  const TrainerOptions& options_;
  World& world_;
  const Device device_;
  const bool program_;
  bool on_ = false;              // wanted, of several ranks in real time
  std::string why_never_;        // no step is looked at; empty: some are
  std::int64_t steps_ = 0;       // so far
  double begun_ = 0, ran_ = 0;   // seconds of the steady clock: the step under way; all steps
  std::vector<double> seconds_;  // of steps that were not recorded
  std::vector<StepTimes> times_;
};

}  // namespace trireme
