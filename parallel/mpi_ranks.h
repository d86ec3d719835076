// What World needs of MPI, without a type of MPI. Implemented by mpi.cpp, or by no_mpi.cpp in a build that has none.
#pragma once
#include "parallel/communicator.h"

namespace trireme {

struct MpiRanks {
  std::unique_ptr<Communicator> comm;  ///< all ranks of the job
  int local_rank = 0, local_size = 1;  ///< among the ranks of this host
  int sharing = 1;                     ///< ranks of this host that may run on this rank's cores, itself included
};

/// Initialises MPI and joins its ranks; once per process. Throws Error in a build without MPI.
MpiRanks join_mpi(int& argc, char**& argv);
/// Waits for all ranks and leaves MPI. comm: of join_mpi, still alive. True when the process should end by _exit, because
/// MPI_Finalize would be unsafe (ranks on several hosts) and was left out.
bool leave_mpi(Communicator& comm);
/// Marks the job as failed. True for the first rank of this host to do so: that rank has the message to print.
bool first_to_fail(Communicator& comm, const std::string& reason);
/// Ends all processes of the job with this exit status, as quietly as MPI allows.
[[noreturn]] void end_mpi_job(int status);

}  // namespace trireme
