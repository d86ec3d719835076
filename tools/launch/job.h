// Job: one attempt at a training: the launcher (or the program itself) and its descendants on this host.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace trireme {

/// Makes this process adopt orphaned descendants (PR_SET_CHILD_SUBREAPER), so that no process of a job is lost. Blocks
/// SIGTERM, SIGINT, SIGUSR1 and SIGCHLD for next_signal().
void adopt_orphans();
/// Waits at most that many seconds. Returns SIGTERM, SIGINT or SIGUSR1, or 0 after the time or when a child has ended.
int next_signal(double seconds);
/// Kills all descendants of this process on this host with SIGKILL, which also kills stopped processes. Returns the
/// number of killed processes.
int kill_all_below();
/// Runs a command without input and output. Returns its exit status; 128 + signal if a signal killed it; 127: not
/// found.
int run_quietly(const std::vector<std::string>& command);

class Job {
 public:
  /// Starts the command, found in PATH, in a new process group, without input. The command dies with this process.
  /// quiet: its output is discarded; last_words() still works. Throws Error if the command cannot be started.
  explicit Job(std::vector<std::string> command, bool quiet = false);
  ~Job();  ///< kills remaining processes, and removes MPI's startup files in /dev/shm
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// Forwards its stderr. Returns whether the command has ended; status() is then valid.
  bool poll();
  /// Signals the command alone; mpiexec forwards SIGTERM and SIGUSR1 to its ranks.
  void signal(int number);
  /// Seconds since a rank's process has disappeared while other ranks and the command still run; 0: none is missing.
  double incomplete();

  /// Why the start has failed: the local ranks that have not joined MPI within six times TRIREME_TIMEOUT, each with its
  /// process and state ("stopped"). Empty: there is time left, all ranks have joined, or no rank is local. ranks: of
  /// the job; a single rank need not join. Call it at least every second.
  std::string hung_start(int ranks);

  int status() const { return status_; }  ///< exit status; 128 + number if a signal killed it
  /// The last line "trireme: ..." that a rank wrote to stderr; empty: none.
  const std::string& last_words() const { return last_words_; }

 private:
  using Clock = std::chrono::steady_clock;
  void pass_on();
  bool quiet_;
  pid_t child_ = -1;
  int errors_ = -1, status_ = -1;  // errors_: read end of its stderr
  std::string line_, last_words_;
  std::set<pid_t> ranks_;  // all ranks seen so far
  std::optional<Clock::time_point> missing_since_;
  bool joined_ = false;           // MPI
  std::set<std::string> shared_;  // MPI's startup files in /dev/shm
  Clock::time_point looked_ = Clock::now();
  double starting_ = 0;  // seconds spent waiting for ranks to join
};

}  // namespace trireme
