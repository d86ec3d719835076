// What World needs of MPI, without a type of MPI. Implemented by mpi.cpp, or by no_mpi.cpp in a build that has none.
#pragma once
#include "parallel/comm/communicator.h"

namespace trireme {

/// This process as a member of an MPI job.
class MpiProcess {
 public:
  virtual ~MpiProcess() = default;
  /// Waits for all ranks and leaves MPI. False when MPI_Finalize was left out because it may hang (ranks on several
  /// hosts): the process should then end by _exit.
  virtual bool leave() = 0;
  /// Ends the waits of this host's ranks. True for the first to do so: that rank has the message to print.
  virtual bool first_to_fail(const AbortReason& reason) = 0;
  /// An exception is on its way past this rank's World: ends the waits of this host's ranks, and, where there are other
  /// hosts, the job, once this process comes to its end.
  virtual void abandon(const AbortReason& reason) = 0;
  /// Ends all processes of the job with this exit status, as quietly as MPI allows. Does not return.
  [[noreturn]] virtual void end_job(int status) = 0;
};

struct MpiRanks {
  std::unique_ptr<MpiProcess> process;
  std::unique_ptr<Communicator> comm;  ///< all ranks of the job
  int local_rank = 0, local_size = 1;  ///< among the ranks of this host
  int sharing = 1;                     ///< ranks of this host that may run on this rank's cores, itself included
};

/// Initialises MPI and joins its ranks; once per process. Throws Error in a build without MPI.
MpiRanks join_mpi(int& argc, char**& argv);

}  // namespace trireme
