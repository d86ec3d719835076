// Job: one attempt at a training: a launcher (or the program itself) and all processes below it on this host.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace trireme {

/// From now on processes whose parents end become children of this one (PR_SET_CHILD_SUBREAPER), so that none of a
/// job's gets lost; SIGTERM, SIGINT, SIGUSR1 and SIGCHLD wait to be taken.
void adopt_orphans();
/// One of the first three signals, if one has come within so many seconds; or 0, as soon as a child has ended.
int next_signal(double seconds);
/// Kills all processes below this one on this host with SIGKILL, which stopped ones obey too, until none is left.
/// Returns how many there were.
int kill_all_below();
/// Runs a command to its end, without input or output. Returns its exit status; 128 + its signal; 127: not there.
int run_quietly(const std::vector<std::string>& command);

class Job {
 public:
  /// Starts the command: found in PATH, in a process group of its own, without input. It dies with this process. quiet:
  /// what it prints is not seen, but for last_words(). Throws Error when it cannot be started.
  explicit Job(std::vector<std::string> command, bool quiet = false);
  ~Job();  ///< kills what is left, and removes files that MPI had in /dev/shm as it started
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// Passes on what it has written to stderr. Returns whether the command has ended: then its exit status is known.
  bool poll();
  /// To the command alone, which passes it on to its ranks (mpiexec: SIGTERM and SIGUSR1).
  void signal(int number);
  /// For how many seconds a process of this program, of those that the job has had, has been missing while others and
  /// the command go on; 0: none is missing.
  double incomplete();

  /// Why the start has failed: the ranks of this host that have not joined MPI within six times TRIREME_TIMEOUT, each
  /// with its process and state ("stopped"). Empty: there is time left, all have joined, or this host has none to look
  /// at. ranks: of the job; a single one joins nothing. To be asked at least every second.
  std::string hung_start(int ranks);

  int status() const { return status_; }  ///< exit status; 128 + number where a signal ended it
  /// The last line that a rank wrote of itself to stderr ("trireme: ..."); empty: there was none.
  const std::string& last_words() const { return last_words_; }

 private:
  using Clock = std::chrono::steady_clock;
  void pass_on();
  bool quiet_;
  pid_t child_ = -1;
  int errors_ = -1, status_ = -1;  // errors_: read end of its stderr
  std::string line_, last_words_;
  std::set<pid_t> ranks_;  // that were seen
  std::optional<Clock::time_point> missing_since_;
  bool joined_ = false;           // MPI
  std::set<std::string> shared_;  // files of MPI's in /dev/shm that its ranks had before that
  Clock::time_point looked_ = Clock::now();
  double starting_ = 0;  // seconds that this process has waited for that
};

}  // namespace trireme
