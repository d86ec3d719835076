// World: all ranks of this run. The same program runs on one process, on threads (World::threads), or on MPI processes.
#pragma once
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "parallel/comm/cluster.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/virtual_clock.h"

namespace trireme {
class MpiProcess;
namespace collectives {
struct AlgorithmTable;
}

// If an exception leaves a World's scope on one rank, the waits of the other ranks throw. The process must then exit
// with a status other than 0, since other ranks may still write to tensors of unfinished calls. World::run does all of
// this.
class World {
 public:
  /// Joins the processes that mpiexec or srun started; without a launcher, a world of one rank. Throws Error with the
  /// remedy if the launcher started several processes but MPI reports one rank in each. When an exception leaves the
  /// World's scope, the waits of the other ranks throw and name this rank. Catch it outside, print it, and return from
  /// main with a status other than 0. An uncaught exception calls std::terminate without destructors; then the launcher
  /// must kill the other ranks (mpiexec does; srun with --kill-on-bad-exit). run() does all of this for its body.
  World(int& argc, char**& argv);
  /// A world of one rank; ignores any launcher.
  World();
  /// A world of ranks that are already connected. local_rank, local_size: among the ranks of this host.
  World(std::unique_ptr<Communicator> comm, int local_rank, int local_size);
  ~World();
  World(World&&) noexcept;  ///< the moved-from World may only be destroyed

  /// Runs body on `ranks` threads, each with a separate World and a share of the cores. The kernels of each use at most
  /// as many threads as this thread may use, so OMP_NUM_THREADS holds, also under MPI. If one throws, the waits of the
  /// others throw, and the first error is rethrown here with its rank. Throws Error before any body starts if the
  /// system cannot start that many threads.
  static void threads(int ranks, const std::function<void(World&)>& body);
  /// As threads(), in simulated time. Ranks run on the cluster's devices in order, each has a separate clock(), and
  /// waits take the time that the cluster describes.
  /// - Data have the bits of threads() with the default all-reduce. A named algorithm (use_all_reduce) changes only the
  ///   durations of calls, not the order of additions.
  /// - Two runs give the same results, however the threads are scheduled: Work::done, wait_any and recv_any see exactly
  ///   the events up to the rank's clock.
  /// - Deadlines shorter than TRIREME_TIMEOUT are in virtual time. Longer ones are ignored; TRIREME_TIMEOUT stops a run
  ///   without progress. A polling loop (done(), wait_for(0)) advances to the next event.
  /// - At most cores() bodies run at once. If all ranks wait for each other, all waits throw and say what for.
  ///
  /// Throws Error before any body starts for an invalid cluster, and for one with fewer devices than ranks.
  static void virtual_time(int ranks, const Cluster&, const std::function<void(World&)>& body);
  /// Runs body on all ranks: the processes of a launcher, else `ranks` threads (1: this thread). If body throws under
  /// MPI, the failing rank prints its message last and the whole job stops within seconds. If the launcher dies, its
  /// processes are killed, so no orphan continues to train. Returns the exit status for main: the largest of body's
  /// results on this process's ranks, or exit_status() of the kind of the first error (kernels/core/error.h).
  static int run(int argc, char** argv, int ranks, const std::function<int(World&)>& body);
  /// As above, for a body that returns void: status 0.
  template <class Body>
  requires std::is_void_v<std::invoke_result_t<Body&, World&>>
  static int run(int argc, char** argv, int ranks, Body&& body) {
    return run(argc, argv, ranks, std::function<int(World&)>([&](World& world) {
                 body(world);
                 return 0;
               }));
  }

  int rank() const { return comm_->rank(); }      ///< rank of this process or thread, in [0, size())
  int size() const { return comm_->size(); }      ///< number of ranks of the job
  int local_rank() const { return local_rank_; }  ///< position among the ranks of this host
  int local_size() const { return local_size_; }  ///< number of ranks of this host
  bool main() const { return rank() == 0; }       ///< whether this is rank 0, the rank that may print and write files
  Communicator& comm() { return *comm_; }         ///< all ranks; lives as long as the World
  const Communicator& comm() const { return *comm_; }           ///< for rank, size and transport
  std::string transport() const { return comm_->transport(); }  ///< Communicator::transport
  /// This rank's simulated clock, which lives as long as the World; null in real time.
  VirtualClock* clock() { return comm_->clock(); }
  /// Declares that this rank's tensors are on this device from now on, or on the host. A collective call. Call it
  /// before making a Mesh or a Step: throws Error while communicators exist that were split from comm() for another
  /// device.
  ///
  /// If every rank has a separate GPU and NCCL starts on all, NCCL carries out the collectives of this communicator,
  /// and of later splits, on GPU tensors. The tensors of a call must then be on these GPUs on all ranks or on none.
  /// Otherwise collectives go through the host; messages always do. Returns the reason for going through the host;
  /// empty: NCCL is used, or there is one rank. If NCCL cannot split a communicator later, split() throws Error on all
  /// of its ranks.
  std::string use(Device device);
  /// Binds this rank's threads to CPUs, as `mpiexec -bind-to` and `srun --cpu-bind` bind processes. The ranks that may
  /// use the same CPUs divide them: NUMA node after node, by cores as long as each rank gets one. A process that its
  /// launcher has bound stays within its CPUs.
  /// - "core": the rank has its own cores. Each thread of its kernels, but for the calling one, is bound to one core.
  /// - "numa": the rank may use all CPUs of the NUMA nodes in which its share is.
  /// - "none": nothing changes.
  ///
  /// Kernels then use at most one thread for each core of the share. Call it before making tensors and threads: Linux
  /// places a page on the NUMA node that first writes to it, and a thread inherits the CPUs of the thread that starts
  /// it. Returns the CPUs, "CPUs 0-3 of NUMA node 0"; empty for "none" and in virtual time, where nothing is bound.
  /// Throws Error for another word.
  std::string bind(const std::string& to);
  /// Replaces the communicator by with_all_reduce(comm, algorithm): "default", "ring", ... A collective call; throws
  /// Error with the list for another name.
  void use_all_reduce(const std::string& algorithm);
  /// As above, with a table that measure_algorithms() made or that was read from text; equal on all ranks.
  void use_all_reduce(const collectives::AlgorithmTable&);

 private:
  static void run_threads(std::vector<std::unique_ptr<Communicator>>, const std::function<void(World&)>& body);

  std::unique_ptr<MpiProcess> process_;  // if set, leaves MPI at the end
  std::unique_ptr<Communicator> comm_;   // a DeviceCommunicator
  int local_rank_ = 0, local_size_ = 1;
  int place_ = 0, sharing_ = 1;  // among the ranks that may use the same CPUs
  std::vector<int> cpus_;        // before bind(); empty: not bound
  int unwinding_ = std::uncaught_exceptions();
};

}  // namespace trireme
