// Ledger: ledger.jsonl of a study, a JSON object per line for every run that was ever started, with failures and
// interruptions. Lines are only appended. Each line has the hash of the line before it (a hash chain, as in Git and RFC
// 6962), so a reader detects removed and edited lines. Somebody who rewrites all later lines and ledger.head is not
// detected, except by the last hash in a printed report.
//
//   {"cell": "strong-r2-tensor", "config_hash": ..., ..., "previous": HASH OF THE LINE BEFORE, "hash": HASH}
//
// HASH is the SHA-256 of the line's bytes before `,"hash":`. "previous" of the first line is empty. ledger.head holds
// the number and hash of the last line, so that lines missing at the end are detected, too.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

inline constexpr const char* ledger_file = "ledger.jsonl";
inline constexpr const char* ledger_head_file = "ledger.head";

/// A line. A run has a line with status "started" when it starts, and another line when it ends.
struct LedgerEntry {
  std::int64_t number = 0;  ///< from 1
  std::string time = {};    ///< UTC, ISO 8601 with milliseconds: "2026-11-25T17:41:46.123Z"
  std::string run = {};     ///< the run's directory, relative to the study's
  std::string cell = {}, scaling = {}, strategy = {}, mesh = {};  ///< as in StudyCell
  int ranks = 1;
  std::int64_t seed = 0;
  std::string config_hash = {};       ///< as in StudyCell
  std::string status = {}, why = {};  ///< status: started, finished, failed or interrupted. why: the reason of a
                                      ///< failure or interruption; asked_by() of a start; else empty
  double seconds = 0;                 ///< wall time of the process, with data, evaluation and checkpoints
  double device_seconds = 0;          ///< seconds times ranks
  /// Share of the host's CPU time that other programs and the hypervisor used during the run, in [0, 1]; -1: unknown.
  double others = -1;
  std::string results = {};  ///< an end: results_hash() of the run directory; empty: it has no results
  std::string previous = {}, hash = {};
};

/// Converts LedgerEntry::time to seconds since 1970. Throws Error for other text.
double unix_seconds(const std::string& time);
std::string utc_text(double unix_seconds);

class LedgerReader {
 public:
  /// Reads and verifies the ledger in a study's directory. A missing ledger is empty. faults() reports damage. Throws
  /// Error only if a file cannot be read.
  explicit LedgerReader(const std::string& directory);
  /// The same from the texts of ledger_file and ledger_head_file, which may be missing.
  LedgerReader(const std::string& lines, const std::optional<std::string>& head);
  /// The complete, unedited lines, in the order of the file.
  const std::vector<LedgerEntry>& entries() const { return entries_; }
  /// Faults, each with its line: "ledger.jsonl:7: ..."; empty: none.
  const std::vector<std::string>& faults() const { return faults_; }
  /// Whether the ledger has no fault, or only an incomplete last line (the machine failed while it was written).
  bool is_continuable() const { return faults_.size() == (torn_bytes_ > 0 ? 1 : 0); }
  std::size_t torn_bytes() const { return torn_bytes_; }  ///< bytes of an incomplete last line
  /// Hash of the last line; empty: there is no line.
  std::string head() const { return entries_.empty() ? "" : entries_.back().hash; }

 private:
  void read_line(const std::string& line, std::int64_t number);
  void read(const std::string& text);
  void compare(const std::optional<std::string>& head);
  std::vector<LedgerEntry> entries_;
  std::vector<std::string> faults_;
  std::size_t torn_bytes_ = 0;
  std::string seen_;              // hash stored in the last line, even if the line is damaged
  std::int64_t last_number_ = 0;  // number stored in the last line, likewise
};

/// SHA-256 of a run's config.toml, data.json, environment.json, metrics.jsonl, mllog.txt and result.json; "" if it has
/// none of them.
std::string results_hash(const std::string& run);

/// Totals for a report: runs tried, failed, device-hours.
struct LedgerTotals {
  int started = 0, finished = 0, failed = 0, interrupted = 0;
  double device_seconds = 0;
};
LedgerTotals totals_of(const std::vector<LedgerEntry>&);
/// Runs that were started and have no line of their end: they are running, or were killed with the study.
std::vector<LedgerEntry> open_runs(const std::vector<LedgerEntry>&);

class LedgerWriter {
 public:
  /// Opens or creates the directory's ledger. An incomplete last line is removed, since it was never reported as
  /// written. The caller excludes other writers, by the store's transaction. Throws Error with the faults if the ledger
  /// does not verify.
  explicit LedgerWriter(const std::string& directory);
  ~LedgerWriter();
  LedgerWriter(const LedgerWriter&) = delete;
  LedgerWriter& operator=(const LedgerWriter&) = delete;
  /// Appends a line and syncs it to the disk. Fills in number, previous and hash, and time if it is empty. Throws Error
  /// if the line cannot be written.
  LedgerEntry append(LedgerEntry);

 private:
  std::string directory_, head_;
  std::int64_t number_ = 0;
  int file_ = -1;
};

}  // namespace trireme
