// StepTrace: profiles some steps of a run (run.profile): records the actions of each rank's thread and merges them.
#pragma once
#include <optional>
#include <string>

#include "framework/tensor/launch.h"
#include "parallel/comm/world/mesh.h"
#include "tools/training/console.h"
#include "tools/training/time_table.h"

namespace trireme {

/// Records the thread that constructs it, through its FlightRecorder. Recording costs a few percent; on GPUs the host
/// waits for each kernel, so kernels do not overlap.
class StepTrace {
 public:
  /// steps: "100-110" or "100", counted from 1; empty: none are traced. Throws OptionError for another text.
  explicit StepTrace(const std::string& steps);
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;

  /// Call before step `next` and its data.
  void begin(std::int64_t next);
  /// Call after that step.
  void end();
  /// Records a part of a step, or the time between two steps, while it lives.
  class Section {
   public:
    Section(StepTrace&, FlightRecorder::Event::Kind, const char* name);
    ~Section();
    Section(const Section&) = delete;

   private:
    StepTrace& trace_;
    std::size_t at_ = 0;
  };
  /// Records that a checkpoint was written in the background, from begin to end in seconds of the steady clock. Call
  /// between steps.
  void wrote(double begin, double end);
  bool is_wanted() const { return last_ > 0 && !told_; }
  bool complete(std::int64_t step) const { return is_wanted() && step >= last_; }
  /// Rank 0 writes trace.json and profile.txt to the directory and prints the table; only once, and only if a step was
  /// traced. Measures the peak of matrix products of the type on the ranks' devices. A collective call.
  void finish(Mesh&, Device, DType, const std::string& directory, Console&);

 private:
  std::int64_t first_ = 0, last_ = 0;  // steps; 0: none
  bool on_ = false, told_ = false;
  RankTrace mine_;
  double operations_ = 0;  // of products and convolutions in the traced steps
  std::vector<std::pair<double, double>> written_;
  std::optional<LaunchWatch> kernels_;
};

}  // namespace trireme
