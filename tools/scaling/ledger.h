// A study's ledger: ledger.jsonl, a JSON object a line for every run that was ever started, failures and interruptions
// included. Lines are only ever appended, each with the hash of the one before (a chain as Git's or RFC 6962's), so
// that a reader finds what was removed or edited. Whoever rewrites all lines from there on and ledger.head can still
// lie: the last hash, printed in a report, is what pins them down.
//
//   {"cell": "strong-r2-tensor", "config_hash": ..., ..., "previous": HASH OF THE LINE BEFORE, "hash": HASH}
//
// HASH is SHA-256 of the bytes of the line before `,"hash":`; "previous" of the first line is empty. ledger.head holds
// number and hash of the last line, so that lines missing at the end are noticed, too.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

inline constexpr const char* ledger_file = "ledger.jsonl";
inline constexpr const char* ledger_head_file = "ledger.head";

/// A line: a run has one with status "started" when it starts, and one of the others when it has ended.
struct LedgerEntry {
  std::int64_t number = 0;  ///< from 1
  std::string time = {};    ///< UTC, ISO 8601 with milliseconds: "2026-11-25T17:41:46.123Z"
  std::string run = {};     ///< the run's directory, relative to the study's
  std::string cell = {}, scaling = {}, strategy = {}, mesh = {};  ///< as in StudyCell
  int ranks = 1;
  std::int64_t seed = 0;
  std::string config_hash = {};       ///< as in StudyCell
  std::string status = {}, why = {};  ///< started, finished, failed, interrupted; why it is one of the last two; of a
                                      ///< start asked_by(); else empty
  double seconds = 0;         ///< wall time of the whole process, data, evaluation and checkpoints included
  double device_seconds = 0;  ///< seconds times ranks
  std::string previous = {}, hash = {};
};

/// Of a time such as LedgerEntry::time: seconds since 1970. Throws Error for another text.
double unix_seconds(const std::string& time);
std::string utc_text(double unix_seconds);

class LedgerReader {
 public:
  /// Reads and verifies the ledger of a study's directory; one that is not there is empty. Damage is told by faults().
  /// Throws Error only where a file cannot be read.
  explicit LedgerReader(const std::string& directory);
  /// The same of the texts of ledger_file and ledger_head_file, which may be missing.
  LedgerReader(const std::string& lines, const std::optional<std::string>& head);
  /// The lines that are whole and unedited, in the file's order.
  const std::vector<LedgerEntry>& entries() const { return entries_; }
  /// What is wrong, each with its line: "ledger.jsonl:7: ..."; empty: nothing is.
  const std::vector<std::string>& faults() const { return faults_; }
  /// Whether its only fault, if any, is a last line cut short (the machine went down while it was written).
  bool is_continuable() const { return faults_.size() == (torn_bytes_ > 0 ? 1 : 0); }
  std::size_t torn_bytes() const { return torn_bytes_; }  ///< of a last line without end
  /// Of the last line; empty: there is none.
  std::string head() const { return entries_.empty() ? "" : entries_.back().hash; }

 private:
  void read_line(const std::string& line, std::int64_t number);
  void read(const std::string& text);
  void compare(const std::optional<std::string>& head);
  std::vector<LedgerEntry> entries_;
  std::vector<std::string> faults_;
  std::size_t torn_bytes_ = 0;
  std::string seen_;              // the hash that the last line says of itself, damaged or not
  std::int64_t last_number_ = 0;  // that it says, alike
};

/// All that was spent: of report's "runs tried, failed, device-hours".
struct LedgerTotals {
  int started = 0, finished = 0, failed = 0, interrupted = 0;
  double device_seconds = 0;
};
LedgerTotals totals_of(const std::vector<LedgerEntry>&);
/// Started runs without a later line of their end: they go on now, or went down with the study.
std::vector<LedgerEntry> open_runs(const std::vector<LedgerEntry>&);

class LedgerWriter {
 public:
  /// Goes on with the directory's ledger, or begins one; a last line cut short is dropped, which nobody was told of.
  /// The caller holds the directory's RunLock. Throws Error with the faults of a ledger that does not verify.
  explicit LedgerWriter(const std::string& directory);
  ~LedgerWriter();
  LedgerWriter(const LedgerWriter&) = delete;
  LedgerWriter& operator=(const LedgerWriter&) = delete;
  /// Appends a line, which is on the disk then. Fills in number, previous, hash and, where it is empty, time. Throws
  /// Error where it cannot be written.
  LedgerEntry append(LedgerEntry);

 private:
  std::string directory_, head_;
  std::int64_t number_ = 0;
  int file_ = -1;
};

}  // namespace trireme
