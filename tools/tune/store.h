// TuneStore: the state of a search in its folder, which any number of workers on any number of hosts share. One of them
// at a time writes (Transaction); a trial is a worker's by a lease, which its heartbeat holds.
//
//   DIR/tune.db        all below; space.toml and settings.toml beside it are copies for people
//   DIR/trials/0007    run directory of trial 7
//   DIR/ledger.jsonl   every start and end of a trial's process (tools/scaling/ledger.h)
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/tune/algorithm.h"
#include "tools/tune/database.h"

namespace trireme {

inline constexpr const char* tune_file = "tune.db";

/// A trial with what people want to know of it. `scores` and `status` are as the search sees them.
struct TrialRow : TrialState {
  std::string why = {};     ///< it failed, or was stopped
  std::string worker = {};  ///< that has it, or had it last: own_identity()
  double seconds = 0;       ///< of its processes
  int attempts = 0;         ///< how often it was started
  int deaths = 0;           ///< how often its process was killed
};
/// A value as it was reported.
struct TrialReport {
  int trial = 0;
  std::int64_t epoch = 0;
  double value = 0, time = 0;  ///< time: Unix, when it was reported first
};
/// A line of the ledger.
struct TrialEvent {
  std::int64_t number = 0;
  int trial = 0;
  std::string status = {}, why = {};
  double time = 0, seconds = 0;
};

/// What a worker is to run: a trial from where it stands to its target.
struct Lease {
  std::int64_t attempt = 0;  ///< of all trials; nobody else's
  TrialState trial = {};
  std::string worker = {};
};
struct Taken {
  enum class Kind : std::uint8_t { run, wait, done } kind = Kind::done;
  Lease lease = {};
};
/// How an attempt has ended: at its target; asked to stop; killed from outside; ended by the search; by a fault of its
/// own.
/// What the reason of a trial that failed begins with where its loss, or another number, was not finite: a result,
/// which the same settings have again.
inline constexpr const char* diverged = "diverged: ";

struct Outcome {
  enum class Kind : std::uint8_t { reached, interrupted, killed, stopped, failed } kind = Kind::failed;
  std::string why = {};
  double seconds = 0;
};

class TuneStore {
 public:
  static bool exists(const std::string& directory);
  /// settings: the training's, a config.toml. Throws Error where it cannot be written.
  static void create(const std::string& directory, const TuneQuestion&, const std::string& settings);
  /// Throws Error: file where the directory holds none, data where its file is another one.
  explicit TuneStore(const std::string& directory);

  const std::string& directory() const { return directory_; }
  TuneQuestion question();
  std::string settings();  ///< config.toml of the training
  std::int64_t trials_wanted();
  void want_trials(std::int64_t);
  /// Why the search is over before its end; empty: it is not. The first reason stays.
  std::string error();
  void give_up(const std::string& why);
  /// Forgets the reason, and that trials failed: all, or, where none has reported anything, those that did not diverge.
  /// What they lacked may be there now.
  void forgive(bool all);

  std::vector<TrialRow> trials();
  std::vector<TrialReport> reports();  ///< by time
  std::vector<TrialEvent> events(std::int64_t after = 0);

  /// The next thing to do: a trial that waits; one whose worker has ended, or has not been heard of for the lease's
  /// time while this store looked; what the search suggests. hash_of: a point's config_hash(), for the ledger.
  Taken take(const std::string& worker, const std::function<std::string(const Point&)>& hash_of);
  /// These are false, and do nothing, where the lease is another's by now.
  bool beat(const Lease&);
  bool report(const Lease&, const std::vector<std::pair<std::int64_t, double>>& values);
  bool end(const Lease&, const Outcome&);
  /// Brings ledger.jsonl up to the events. Throws Error for one that was edited.
  void write_ledger();

 private:
  using Clock = std::chrono::steady_clock;
  struct Beat {
    std::int64_t attempt, count;
    Clock::time_point since;  // when this store saw the count first
  };
  std::string value_of(const std::string& key);
  void set_value(const std::string& key, const std::string& value);
  void release_lost();
  Lease lease(int trial, const std::string& worker, const std::function<std::string(const Point&)>& hash_of);
  int insert(const Suggestion&);
  void append_events(std::int64_t have);  // to the ledger, which has so many
  std::int64_t note(int trial, const std::string& status, const std::string& why, double seconds,
                    const std::string& hash);

  std::string directory_;
  Database database_;
  TuneQuestion question_;
  std::map<int, Beat> seen_;
  std::int64_t written_ = 0;  // events that the ledger is known to have
};

/// "DIR/trials/0007"
std::string trial_directory(const std::string& directory, int trial);

}  // namespace trireme
