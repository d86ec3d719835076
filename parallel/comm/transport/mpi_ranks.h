// The MPI functions that World needs, without MPI types. Implemented by mpi.cpp, or by no_mpi.cpp in a build without
// MPI.
#pragma once
#include "parallel/comm/communicator.h"

namespace trireme {

/// This process as a member of an MPI job.
class MpiProcess {
 public:
  virtual ~MpiProcess() = default;
  /// Waits for all ranks and leaves MPI. False if MPI_Finalize was skipped because it may hang (ranks on several
  /// hosts): the process should then call _exit.
  virtual bool leave() = 0;
  /// Aborts the waits of this host's ranks. True for the first caller, which must print the message.
  virtual bool first_to_fail(const AbortReason& reason) = 0;
  /// Call when an exception leaves this rank's World: aborts the waits of this host's ranks. With several hosts it also
  /// aborts the job when this process exits.
  virtual void abandon(const AbortReason& reason) = 0;
  /// Stops all processes of the job with this exit status, with as little output as MPI allows. Does not return.
  [[noreturn]] virtual void end_job(int status) = 0;
};

/// The result of join_mpi().
struct MpiRanks {
  std::unique_ptr<MpiProcess> process;  ///< this process
  std::unique_ptr<Communicator> comm;   ///< all ranks of the job
  int local_rank = 0, local_size = 1;   ///< position among, and number of, the ranks of this host
  int sharing = 1;                      ///< ranks of this host that share this rank's cores, including this rank
  int place = 0;                        ///< position of this rank among these
};

/// Initialises MPI and joins its ranks; once per process. Throws Error in a build without MPI.
MpiRanks join_mpi(int& argc, char**& argv);

}  // namespace trireme
