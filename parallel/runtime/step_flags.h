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

  /// Raises a flag on this rank. The next exchange of flags informs all ranks; it takes place every FlagOptions::every
  /// steps. Throws Error for a name that StepOptions::flags does not have, and with servers.
  void raise(const std::string& flag);
  /// Whether an exchange in the last step found the flag raised on any rank; equal on all ranks.
  bool raised(const std::string& flag) const;

 private:
  Step::Impl& step_;
};

}  // namespace trireme
