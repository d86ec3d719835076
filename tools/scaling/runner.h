// Runs a study: `trireme train` for each cell and seed in turn. Each start and end is recorded in the ledger.
#pragma once
#include <string>
#include <vector>

#include "tools/scaling/study.h"

namespace trireme {

struct RunnerOptions {
  std::string directory;  ///< of the study; created if it is missing
  bool dry_run = false;   ///< only list the runs that are left, their expected time, and the results so far
  double grace = 60;      ///< seconds from the request to stop a run until it is killed
};

/// Runs the study, or continues it after an earlier call with the same question. Finished runs are kept. Interrupted
/// and failed runs resume from their checkpoint, or start again. Prints the table at the end. Returns 0; 1 if runs
/// failed, which does not stop other runs; 85 after SIGINT, SIGTERM or SIGUSR1. Call adopt_orphans() before the first
/// thread starts. Throws OptionError for a directory with another question, and Error for a ledger that does not
/// verify.
int run_study(const StudyOptions&, const TrainerOptions& settings, const std::vector<PlannedCell>&,
              const RunnerOptions&);

}  // namespace trireme
