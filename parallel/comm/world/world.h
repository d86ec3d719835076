// World: all ranks of this run. The same program runs on one process, on threads (World::threads), or on MPI processes.
#pragma once
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>

#include "parallel/comm/cluster.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/virtual_clock.h"

namespace trireme {
class MpiProcess;
namespace collectives {
struct AlgorithmTable;
}

// An exception that leaves a World on one rank ends the waits of the others, which throw; the process must then end,
// with a status other than 0, since others may yet write to tensors of calls that were under way. World::run sees to
// all that.
class World {
 public:
  /// Joins the processes that mpiexec or srun started, or is a world of one. Refuses a launch in which every process
  /// believes to be rank 0 of 1 (a launcher's environment says more than one, MPI says one), and names the fix.
  /// When an exception leaves the World's scope, the waits of the other ranks throw and name this
  /// rank; catch it further out, print it, and return from main with a status other than 0. One that nothing catches
  /// ends the process by std::terminate, without destructors: then it is the launcher that ends the others (mpiexec
  /// does; srun with --kill-on-bad-exit). run() does all of this for its body.
  World(int& argc, char**& argv);
  /// A world of one, without looking at any launcher.
  World();
  /// A world of ranks that are joined already.
  World(std::unique_ptr<Communicator> comm, int local_rank, int local_size);
  ~World();
  World(World&&) noexcept;  ///< the other may only be destroyed after that

  /// Runs body on `ranks` threads, each with its own World and its share of the cores (its kernels use no more threads
  /// than this thread's may, so that OMP_NUM_THREADS is heeded; under MPI, too). If one throws, the others are ended
  /// (their waits throw) and the first error is rethrown here with its rank. Throws Error, with no body begun, if the
  /// system does not start that many threads.
  static void threads(int ranks, const std::function<void(World&)>& body);
  /// The same in simulated time: ranks lie on the cluster's devices in their order, each has a clock() of its own, and
  /// waits take what the cluster says, not what they take here. Data have the bits of threads() with the default
  /// all-reduce; a named one (use_all_reduce) only says here what calls take, not in which order they add. Two runs are
  /// the same run, whatever the threads do: what a rank finds at a moment of its clock (Work::done, wait_any, recv_any)
  /// is what is there by then. Deadlines shorter than TRIREME_TIMEOUT are of virtual time, longer ones are none: that
  /// ends a run in which nothing moves. A loop that only asks (done(), wait_for(0)) goes on to the next event. At most
  /// cores() bodies run at once. Where all ranks wait for each other, all waits throw and say for what. Throws Error,
  /// with no body begun, for an impossible cluster and for one with fewer devices than ranks.
  static void virtual_time(int ranks, const Cluster&, const std::function<void(World&)>& body);
  /// One call for all: under a launcher, its processes; else `ranks` threads (1: this thread). If body throws under
  /// MPI, the message is printed last by the failing rank and the whole job ends within seconds; the exception never
  /// leaves on another rank silently. A process that a launcher started is killed when its parent ends, so that no
  /// orphan trains on. Returns the exit status for main: body's, the largest of this process's ranks;
  /// exit_status() of the kind of the first error (kernels/core/error.h).
  static int run(int argc, char** argv, int ranks, const std::function<int(World&)>& body);
  /// The same for a body without a status: 0.
  template <class Body>
  requires std::is_void_v<std::invoke_result_t<Body&, World&>>
  static int run(int argc, char** argv, int ranks, Body&& body) {
    return run(argc, argv, ranks, std::function<int(World&)>([&](World& world) {
                 body(world);
                 return 0;
               }));
  }

  int rank() const { return comm_->rank(); }                    ///< of this process or thread, in [0, size())
  int size() const { return comm_->size(); }                    ///< ranks of the job
  int local_rank() const { return local_rank_; }                ///< among the ranks of this host
  int local_size() const { return local_size_; }                ///< ranks of this host
  bool main() const { return rank() == 0; }                     ///< the rank that may print and write
  Communicator& comm() { return *comm_; }                       ///< of all ranks; lives as long as the World
  const Communicator& comm() const { return *comm_; }           ///< to ask for its rank, size and transport
  std::string transport() const { return comm_->transport(); }  ///< Communicator::transport
  /// Of this rank, lives as long as the World; null where time is real.
  VirtualClock* clock() { return comm_->clock(); }
  /// From now on this rank's tensors lie on this device, or on the host. A collective call; throws Error while there
  /// are communicators that were split from comm() (by a Mesh or a Step) for another device: make those behind it.
  /// Where every rank has a GPU of its own and NCCL starts on all, the collectives of tensors on them go by NCCL, of
  /// this communicator and of all that are split from it later; a call's tensors must then lie on these GPUs on all
  /// ranks or on none. Else they go through the host; so do messages. Returns why they do, in words; empty: they do
  /// not, or there is one rank.
  std::string use(Device device);
  /// Replaces the communicator by with_all_reduce(comm, algorithm): "default", "ring", ... A collective call; throws
  /// Error with the list for another name.
  void use_all_reduce(const std::string& algorithm);
  /// The same by a table that was measured (measure_algorithms), or read again; alike on all ranks.
  void use_all_reduce(const collectives::AlgorithmTable&);

 private:
  static void run_threads(std::vector<std::unique_ptr<Communicator>>, const std::function<void(World&)>& body);

  std::unique_ptr<MpiProcess> process_;  // set: it leaves MPI at the end
  std::unique_ptr<Communicator> comm_;   // a DeviceCommunicator
  int local_rank_ = 0, local_size_ = 1;
  int unwinding_ = std::uncaught_exceptions();
};

}  // namespace trireme
