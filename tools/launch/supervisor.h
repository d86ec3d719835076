// Supervisor: runs a training as a job of its own and starts it again, from its newest checkpoint, when it fails.
#pragma once
#include <string>
#include <vector>

#include "tools/launch/hosts.h"

namespace trireme {

struct LaunchOptions {
  int ranks = 0;                     ///< at least 1; 0: all slots of the hosts, or 1
  std::vector<Host> hosts;           ///< empty: this one, or those of the Slurm allocation
  std::string launcher = "auto";     ///< threads, mpiexec, srun; auto: mpiexec with hosts, srun in a Slurm allocation
  int max_restarts = 3,              ///< in all, at least 0
      min_ranks = 0;                 ///< go on with fewer ranks where hosts are gone; 0: as many as at the start
  double grace = 60;                 ///< seconds for a job that was asked to stop, or of which a process has ended
  std::string run_dir;               ///< of the training
  std::vector<std::string> program,  ///< what a rank runs; without the settings below
      go_on = {};                    ///< words by which it begins, or goes on with what is there
};

/// The command of an attempt with these hosts. Throws OptionError where the launcher cannot have them.
std::vector<std::string> command_of(const LaunchOptions&, const std::vector<Host>& hosts, int ranks);
/// The hosts of these that answer: this one, and those on which the remote shell (HYDRA_LAUNCHER_EXEC, else ssh) runs a
/// command within 5 s.
std::vector<Host> reachable(const std::vector<Host>&);
/// Whether another attempt may do better than one with this exit status: kernels/core/error.h says for which kinds.
bool may_pass(int status);
/// Runs it until it is finished (returns 0), has been asked to stop and saved (85), or has failed. An attempt fails,
/// too, whose ranks have not joined MPI within six times TRIREME_TIMEOUT, and one that ends without a result of its
/// own; one that was asked to stop and has not saved ends the supervision (143). It starts the job again, at most
/// max_restarts times, unless the exit status is that of a kind of error that another attempt cannot
/// cure (kernels/core/error.h). Returns the last attempt's status where it is that of a kind, else 1. A second SIGINT
/// ends all at once (130). No process of the job is left on this host. Writes RUN_DIR/result.json: what the training
/// wrote, with "exit", "restarts" and "attempts", of which each has its "status" and, for an error, its "kind".
int supervise(const LaunchOptions&);

}  // namespace trireme
