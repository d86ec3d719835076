// StudyResult: what the runs of a study have come to, read from its directory, whole or not: study.toml, ledger.jsonl,
// and of each run config.toml, metrics.jsonl and mllog.txt.
#pragma once
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/scaling/ledger.h"
#include "tools/scaling/statistics.h"
#include "tools/scaling/study.h"

namespace trireme {

/// A number that is not known.
inline constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

/// What a run, a cell's with one seed, has come to.
struct RunOutcome {
  std::int64_t seed = 0;
  std::string run = {},
              status = {};  ///< finished, failed, interrupted, running (started, with no end in the ledger), missing
  std::string why = {};     ///< it failed, or its numbers do not count: a run directory with other settings
  int attempts = 0;         ///< starts in the ledger
  int failures = 0;         ///< of these, that failed
  double seconds = 0;       ///< wall time of all attempts
  double accuracy = unknown, best = unknown;  ///< test_top1, %, of the last evaluation, and the highest
  double step_seconds = unknown;   ///< a step's wall time, waiting for data included: the median of its epochs' means
  double samples_per_s = unknown;  ///< alike
  double to_target = never;        ///< seconds since the first attempt's process began, what was lost included
  std::vector<std::pair<double, double>> curve = {};  ///< those seconds and test_top1 of each evaluation
};
/// A cell's line of the table. Failed runs count in `failed` and as never in to_target; their accuracy and speed do not
/// count.
struct CellResult {
  StudyCell cell = {};
  bool weak = false;  ///< the line is one of weak scaling (the serial cell has two where both are asked)
  std::vector<RunOutcome> runs = {};
  int finished = 0, failed = 0;
  int after_failure = 0;  ///< of the finished ones, that failed before and were started again
  double accuracy = unknown, accuracy_sd = unknown;  ///< of finished runs
  double step_seconds = unknown;                     ///< median of finished runs
  MedianInterval step_interval = {};
  double samples_per_s = unknown;  ///< median of finished runs
  double to_target = unknown;      ///< median of finished and failed ones; never; NaN: no target, or no run
  int reached = 0;
  /// samples_per_s over that of the best serial run; NaN without an accuracy of both.
  double speedup = unknown;
};
struct StudyResult {
  StudyQuestion question = {};
  std::vector<CellResult> cells = {};
  std::optional<std::size_t> best_serial = {};  ///< of cells: the serial one with the most samples per second
  LedgerTotals totals = {};
  std::vector<std::string> faults = {};  ///< of the ledger, and run directories that are not what it says
  std::string ledger_head = {};
};
/// Reads everything in the directory. Throws Error where it holds no study.
StudyResult study_result(const std::string& directory);
/// As text, with what limits it below.
std::string table_of(const StudyResult&);
/// "single run" below two, "n runs" below five, else "".
std::string few_runs(int finished);

}  // namespace trireme
