// StudyResult: results of a study, complete or not, read from study.toml, ledger.jsonl, and each run's config.toml,
// metrics.jsonl and mllog.txt.
#pragma once
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/study/ledger.h"
#include "tools/study/statistics.h"
#include "tools/study/study.h"

namespace trireme {

/// An unknown number.
inline constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

/// Result of a run: a cell with one seed.
struct RunOutcome {
  std::int64_t seed = 0;
  std::string run = {},
              status = {};  ///< finished, failed, interrupted, running (started, with no end in the ledger), missing
  std::string why = {};     ///< why it failed, or why its numbers do not count (settings differ from the study's)
  int attempts = 0;         ///< starts in the ledger
  double others = -1;       ///< as in LedgerEntry
  int failures = 0;         ///< failed starts
  int repeats = 0;          ///< finished attempts that were dropped, since the run's folder was gone
  double seconds = 0;       ///< wall time of all attempts
  double accuracy = unknown, best = unknown;  ///< test_top1 in % of the last evaluation, and the highest
  double step_seconds = unknown;   ///< wall time of a step, with waiting for data: median over epochs of their mean
  double samples_per_s = unknown;  ///< likewise
  double to_target = never;        ///< seconds since the start of the first attempt's process, with lost work
  std::vector<std::pair<double, double>> curve = {};  ///< (these seconds, test_top1) of each evaluation
};
/// A row of the table: a cell. Failed runs are counted in `failed`, and in to_target as never. Their accuracy and speed
/// are not used.
struct CellResult {
  StudyCell cell = {};
  bool weak = false;  ///< the row is of weak scaling; the serial cell has a row in each table
  std::vector<RunOutcome> runs = {};
  int finished = 0, failed = 0;
  int after_failure = 0;                             ///< finished runs that failed in an earlier attempt
  int repeated = 0;                                  ///< runs whose folder was gone, so that they ran again
  double others = -1;                                ///< median of RunOutcome::others; -1: unknown
  double accuracy = unknown, accuracy_sd = unknown;  ///< of finished runs
  double step_seconds = unknown;                     ///< median of finished runs
  MedianInterval step_interval = {};
  double samples_per_s = unknown;  ///< median of finished runs
  double to_target = unknown;      ///< median of finished and failed runs; never; NaN: no target, or no run
  int reached = 0;
  /// samples_per_s over that of the best serial run; NaN if one of them has no accuracy.
  double speedup = unknown;
};
struct StudyResult {
  StudyQuestion question = {};
  std::vector<CellResult> cells = {};
  std::optional<std::size_t> best_serial = {};  ///< index of the serial cell with most samples per second
  LedgerTotals totals = {};
  std::vector<std::string> faults = {};  ///< of the ledger, and of run directories that contradict it
  std::string ledger_head = {};
  std::vector<std::string> warnings = {};  ///< what a reader should know: runs that were repeated, great speed-ups
  /// Median and largest share of the host's CPU time that others used during finished runs; -1: unknown.
  double others = -1, most_others = -1;
};
/// "other programs used 3 % of the machine's CPU time during a median run, and 12 % during the worst"; "": unknown.
std::string others_text(const StudyResult&);
/// Reads the directory. Throws Error if it holds no study.
StudyResult study_result(const std::string& directory);
/// The results as text, with their limitations.
std::string table_of(const StudyResult&);
/// "single run" for one, "N runs" for up to four, else "".
std::string few_runs(int finished);

}  // namespace trireme
