// JobMonitor: the processes of a job tell each other, past MPI, that they live and what their ranks do. One that is
// stopped, or gone, is named, and the job ended. (Horovod's stall inspector, NVIDIA's NVRx.)
#pragma once
#include <memory>
#include <string>

#include "parallel/comm/communicator.h"

namespace trireme {

/// Rank 0's process listens, on the loopback where all ranks share a host, for TCP connections of the others, who must
/// know a number of 128 bits that travels by a broadcast; it answers with another one. What does not know it is
/// dropped. Each process then tells every half second what its FlightRecorders say. A process that is silent for 0.9 of
/// TRIREME_TIMEOUT, or whose connection has ended without a goodbye for 3 s, is named on stderr with its rank, host,
/// process, phase, last call, and the ranks that wait; then all processes end by crash(), and one that does not move is
/// killed by those on its host. The job ends in this way, too, if all ranks have waited for each other in a step for a
/// second more than TRIREME_TIMEOUT. Time counts in which the process that counts has run itself. A process that cannot
/// connect is told of, and is not watched.
class JobMonitor {
 public:
  /// A collective call of all ranks. In a world of threads only rank 0's does something. Throws Error (usage) on rank 0
  /// if its host allows too few open files for a connection to each process; the soft limit is raised where it is low.
  explicit JobMonitor(Communicator&);
  ~JobMonitor();
  JobMonitor(const JobMonitor&) = delete;
  /// Rank 0, once: from now on this file has the state of all ranks. It is rewritten every second, readable by its
  /// owner alone, and removed when the JobMonitor is destroyed: live_verdict() reads it. A file system that stalls
  /// delays the file, and neither the beats nor the training.
  void write_to(const std::string& path);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// What each rank of a run does, a line each, and last what holds it up, if anything does: of the file that write_to()
/// writes. held: set to whether something does. Throws Error where there is no such file, and for another one.
std::string live_verdict(const std::string& path, bool& held);

}  // namespace trireme
