// JobMonitor: stops a job in which a rank hangs or a process is killed, and reports where. A heartbeat between the
// processes, independent of MPI, carries the state of their ranks. (Horovod's stall inspector, NVIDIA's NVRx.)
#pragma once
#include <memory>
#include <string>

#include "parallel/comm/communicator.h"

namespace trireme {

/// Rank 0's process listens for TCP connections of the other processes (on the loopback if all ranks share a host).
/// Both sides prove themselves with 128-bit numbers that travel by a broadcast; other connections are dropped. Each
/// process sends the state of its FlightRecorders every half second.
///
/// It stops the job if
/// - a rank of this process hangs: it has begun or ended no action and begun no kernel for longer than its phase
///   allows, and does not wait for other ranks. A step allows 0.9 of TRIREME_TIMEOUT, so the rank is named before other
///   ranks time out; other phases (start, save, evaluate) allow six times TRIREME_TIMEOUT.
/// - a process is silent for 0.9 of TRIREME_TIMEOUT, or its connection has closed without a goodbye for 3 s.
/// - all ranks have waited for each other in a step for a second more than TRIREME_TIMEOUT.
///
/// stderr then names the rank, its host, process, phase and last action, and the ranks that wait. Processes stop by
/// crash(), with the stack of the rank that hangs; a process that does not react is killed by the others on its host.
/// Only time in which the counting process itself ran counts. A process that cannot connect is reported, and the others
/// do not watch it.
class JobMonitor {
 public:
  /// A collective call of all ranks. In a world of threads only rank 0's monitor is active. Rank 0 raises a low soft
  /// limit of open files; throws Error (usage) if its host allows too few for a connection to each process.
  explicit JobMonitor(Communicator&);
  ~JobMonitor();
  JobMonitor(const JobMonitor&) = delete;
  /// Call once on rank 0: writes the state of all ranks to this file every second, for live_verdict(). Only its owner
  /// can read the file; the destructor removes it. A slow file system delays only the file, not heartbeats or training.
  void write_to(const std::string& path);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The activity of each rank of a run, one line per rank, from the file of write_to(). The last line names the rank or
/// call that blocks the run, if any. held: set to whether the run is blocked. Throws Error if the file is missing or
/// has another format.
std::string live_verdict(const std::string& path, bool& held);

}  // namespace trireme
