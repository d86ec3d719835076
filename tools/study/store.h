// StudyStore: the state of a search or a scaling study in its folder, shared by any number of workers on any number of
// hosts. One worker at a time writes (Transaction). A worker owns a trial by a lease, which heartbeats renew.
//
//   DIR/study.db       the state
//   DIR/study.toml     the question of a scaling study, or space.toml that of a search; settings.toml is the training:
//                      copies for people
//   DIR/trials/0007    run directory of trial 7; in a scaling study DIR/runs/CELL/seed_7
//   DIR/ledger.jsonl   every start and end of a trial's process (tools/study/ledger.h)
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/study/algorithm.h"
#include "tools/study/database.h"

namespace trireme {

inline constexpr const char* store_file = "study.db";

/// A trial with further data for reports.
struct TrialRow : TrialState {
  std::string why = {};     ///< why it failed or was stopped
  std::string worker = {};  ///< own_identity() of the current or last worker
  double seconds = 0;       ///< wall time of its processes
  int attempts = 0;         ///< number of starts
  int deaths = 0;           ///< number of times that its process was killed
};
/// A reported value.
struct TrialReport {
  int trial = 0;
  std::int64_t epoch = 0;
  double value = 0, time = 0;  ///< time: of the first report, in Unix seconds
};
/// A line of the ledger.
struct TrialEvent {
  std::int64_t number = 0;
  int trial = 0;
  std::string status = {}, why = {};
  double time = 0, seconds = 0;
};

/// A worker's task: a trial to train from its current epoch to its target.
struct Lease {
  std::int64_t attempt = 0;  ///< unique among all trials
  TrialState trial = {};
  std::string worker = {};
  bool is_first = false;  ///< whether it is the trial's first, so that its folder must be empty
};
struct Taken {
  enum class Kind : std::uint8_t { run, wait, done } kind = Kind::done;
  Lease lease = {};
};
/// The reason of a failed trial starts with this text if its loss, or another number, was not finite. Such a failure is
/// a result: the same settings would fail again.
inline constexpr const char* diverged = "diverged: ";
/// Likewise of a first attempt that found files in the trial's folder, and was not started.
inline constexpr const char* planted = "its folder has files of no run of this study";

/// How an attempt ended: at its target; asked to stop; killed from outside; stopped by the search; or failed.
struct Outcome {
  enum class Kind : std::uint8_t { reached, interrupted, killed, stopped, failed } kind = Kind::failed;
  std::string why = {};
  double seconds = 0;
  double others = -1;        ///< as in LedgerEntry
  std::string results = {};  ///< as in LedgerEntry
};

class StudyStore {
 public:
  static bool exists(const std::string& directory);
  /// settings: config.toml of the training. Throws Error if the folder cannot be written.
  static void create(const std::string& directory, const Question&, const std::string& settings);
  /// Throws Error: kind file if the directory holds no search, kind data if its file is of another kind.
  explicit StudyStore(const std::string& directory);

  const std::string& directory() const { return directory_; }
  Question question();
  std::string settings();  ///< config.toml of the training
  /// What a trial's start records in the ledger: "asked by SHA-256 ...", of a search's question and settings.
  std::string asked_by();
  std::int64_t trials_wanted();
  void want_trials(std::int64_t);
  std::string trials_asked();  ///< "8, then 12" if the number grew, else empty
  /// Why the search was given up; empty: it was not. The first reason is kept.
  std::string error();
  void give_up(const std::string& why);
  /// Forgets the reason and failures, so that trials can be tried again. all: of all failed trials; else only if no
  /// trial has reported a value, of trials that did not diverge. A scaling study repeats all failed runs, and runs
  /// whose folder is gone.
  void forgive(bool all);
  /// Throws Error of kind data if the ledger was edited or has fewer lines than this store has written.
  void check_ledger();

  std::vector<TrialRow> trials();
  std::vector<TrialReport> reports();  ///< by time
  std::vector<TrialEvent> events(std::int64_t after = 0);

  /// The next task: a waiting trial; a trial whose worker has ended or has sent no heartbeat for the lease's time; or a
  /// suggestion of the search. A scaling study's runs follow each other, however many workers there are. hash_of:
  /// config_hash() of a point, for the ledger.
  Taken take(const std::string& worker, const std::function<std::string(const Point&)>& hash_of);
  /// These functions return false, and do nothing, if another worker has taken the lease.
  bool beat(const Lease&);
  bool report(const Lease&, const std::vector<std::pair<std::int64_t, double>>& values);
  bool end(const Lease&, const Outcome&);
  /// Appends new events to ledger.jsonl. Throws Error if the ledger was edited.
  void write_ledger();

 private:
  using Clock = std::chrono::steady_clock;
  struct Beat {
    std::int64_t attempt, count;
    Clock::time_point since;  // when this store first saw the count
  };
  std::string value_of(const std::string& key);
  void set_value(const std::string& key, const std::string& value);
  void release_lost();
  Lease lease(int trial, const std::string& worker, const std::function<std::string(const Point&)>& hash_of);
  int insert(const Suggestion&);
  void append_events(std::int64_t have);  // to the ledger, which has `have` lines
  std::int64_t note(int trial, const std::string& status, const std::string& why, double seconds,
                    const std::string& hash, const Outcome& = {});

  std::vector<LedgerEntry> sound_ledger();  // throws as check_ledger()
  std::string directory_;
  Database database_;
  Question question_;
  std::map<int, Beat> seen_;
  std::int64_t written_ = 0;  // events known to be in the ledger
};

/// What the store's events and the ledger's lines do not have in common. under_way: the last lines may be missing.
std::vector<std::string> differences(StudyStore&, const std::vector<LedgerEntry>& ledger, bool under_way);
/// "DIR/trials/0007", of a search.
std::string trial_directory(const std::string& directory, int trial);

}  // namespace trireme
