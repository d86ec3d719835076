// Supervisor: runs a training as a separate job. If the job fails, restarts it from its newest checkpoint.
#pragma once
#include <string>
#include <vector>

#include "tools/launch/hosts.h"

namespace trireme {

struct LaunchOptions {
  int ranks = 0;                     ///< at least 1; 0: all slots of the hosts, or 1
  std::vector<Host> hosts;           ///< empty: this host, or the hosts of the Slurm allocation
  std::string launcher = "auto";     ///< threads, mpiexec, srun; auto: mpiexec with hosts, srun in a Slurm allocation
  int max_restarts = 3,              ///< in all, at least 0
      min_ranks = 0;                 ///< continue with fewer ranks if hosts are lost; 0: the number at the start
  double grace = 60;                 ///< seconds for a job to stop after it was asked, or after a process was lost
  std::string run_dir;               ///< of the training
  std::vector<std::string> program,  ///< command of a rank, without the words below
      go_on = {};                    ///< words that make it resume if there is a checkpoint
};

/// The command of an attempt on these hosts. Throws OptionError if the launcher cannot use hosts.
std::vector<std::string> command_of(const LaunchOptions&, const std::vector<Host>& hosts, int ranks);
/// The hosts that answer: this host, and hosts on which the remote shell (HYDRA_LAUNCHER_EXEC, else ssh) runs a command
/// within 5 s.
std::vector<Host> reachable(const std::vector<Host>&);
/// Whether a retry may succeed after this exit status (kernels/core/error.h).
bool may_pass(int status);
/// Runs the training until it is finished (returns 0), has been asked to stop and has saved (85), or has failed.
/// - An attempt also fails if its ranks have not joined MPI within six times TRIREME_TIMEOUT, or if it ends without a
///   result.
/// - A failed job is restarted at most max_restarts times, unless the kind of error rules out a retry
///   (kernels/core/error.h). Returns the last attempt's status if it is an error kind's, else 1.
/// - A job that was asked to stop and has not saved ends the supervision (143). A second SIGINT kills everything at
///   once (130).
/// No process of the job is left on this host. Writes RUN_DIR/result.json: the training's result with "exit",
/// "restarts" and "attempts". Each attempt has a "status" and, for an error, a "kind".
int supervise(const LaunchOptions&);

}  // namespace trireme
