// Replaces mpi.cpp in a build without MPI.
#include "parallel/comm/transport/mpi_ranks.h"

namespace trireme {

MpiRanks join_mpi(int&, char**&) {
  fail(ErrorKind::communicator, "world",
       "started as one of several processes, but this build has no MPI: rebuild with -Dmpi=enabled, or start one "
       "process "
       "and use --ranks for threads");
}

std::string mpi_version() { return "none: built without MPI (-Dmpi=enabled builds with it)"; }

}  // namespace trireme
