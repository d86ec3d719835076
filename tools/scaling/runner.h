// Runs a study: `trireme train` for each cell and seed, one after the other, each start and end noted in the ledger.
#pragma once
#include <string>
#include <vector>

#include "tools/scaling/study.h"

namespace trireme {

struct RunnerOptions {
  std::string directory;  ///< of the study; made where it is not there
  bool dry_run = false;   ///< only list what would be run, how long it may take, and the table so far
  double grace = 60;      ///< seconds for a run that was asked to stop, before it is killed
};

/// Goes on where an earlier call with the same question has come to: finished runs stay, interrupted and failed ones go
/// on from their checkpoint, or begin again. Prints the table at the end. Returns 0; 1 where runs failed, which does
/// not stop the others; 85 asked to stop by SIGINT, SIGTERM or SIGUSR1. adopt_orphans() was called before any thread
/// was started. Throws OptionError for a directory with another question, Error for a ledger that does not verify.
int run_study(const StudyOptions&, const TrainerOptions& settings, const std::vector<PlannedCell>&,
              const RunnerOptions&);

}  // namespace trireme
