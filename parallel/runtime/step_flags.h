// StepFlags: flags that any rank raises between steps ("stop", "save"), and that all ranks see after the same step.
#pragma once
#include <string>

#include "parallel/runtime/step.h"

namespace trireme {

/// The StepOptions::flags of a step, which must outlive the handle.
class StepFlags {
 public:
  /// step: must outlive the handle.
  explicit StepFlags(Step& step) : step_(*step.impl_) {}

  /// Raises a flag on this rank. The next exchange of flags (FlagOptions::every) informs all ranks. Throws Error for
  /// another name than those of StepOptions::flags, and with servers.
  void raise(const std::string& flag);
  /// Whether the last step informed all ranks that a rank had raised this flag; equal on all ranks.
  bool raised(const std::string& flag) const;

 private:
  Step::Impl& step_;
};

}  // namespace trireme
