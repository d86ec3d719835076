// StepTrace: what a rank's thread did in some steps of a run (run.profile), put together over ranks.
#pragma once
#include <optional>
#include <string>

#include "framework/tensor/launch.h"
#include "parallel/comm/world/mesh.h"
#include "tools/training/console.h"
#include "tools/training/time_table.h"

namespace trireme {

/// Of the thread that makes it and its FlightRecorder. Recording costs some percent; on GPUs each kernel is also waited
/// for, which takes away what they do at once.
class StepTrace {
 public:
  /// steps: "100-110" or "100", counted from 1; empty: none are traced. Throws OptionError for another text.
  explicit StepTrace(const std::string& steps);
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;

  /// Before step `next` and its data.
  void begin(std::int64_t next);
  /// Behind that step.
  void end();
  /// A part of a step, or what lies between two, while it lives.
  class Section {
   public:
    Section(StepTrace&, FlightRecorder::Event::Kind, const char* name);
    ~Section();
    Section(const Section&) = delete;

   private:
    StepTrace& trace_;
    std::size_t at_ = 0;
  };
  /// Between steps begun and ended, seconds of the steady clock: a checkpoint was written behind training.
  void wrote(double begin, double end);
  bool is_wanted() const { return last_ > 0 && !told_; }
  bool complete(std::int64_t step) const { return is_wanted() && step >= last_; }
  /// Rank 0 writes trace.json and profile.txt to the directory and prints the table; once, where any step was traced.
  /// A collective call.
  void finish(Mesh&, const std::string& directory, Console&);

 private:
  std::int64_t first_ = 0, last_ = 0;  // steps; 0: none
  bool on_ = false, told_ = false;
  RankTrace mine_;
  std::vector<std::pair<double, double>> written_;
  std::optional<LaunchWatch> kernels_;
};

}  // namespace trireme
