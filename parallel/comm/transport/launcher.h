// Launcher: what the environment says about how this process was started.
#pragma once
#include <functional>
#include <string>

namespace trireme {

struct Launcher {
  /// "mpiexec", "mpirun (Open MPI)", "srun", "torchrun" (any that sets LOCAL_RANK and WORLD_SIZE), "horovodrun"; empty:
  /// started plainly.
  std::string name;
  int ranks = 1;     ///< processes it started, as far as it tells
};

/// The name of a thread that each rank of several has once all ranks have joined MPI. `trireme launch` looks for it.
inline constexpr char joined_thread[] = "trireme-mpi";

/// get: std::getenv, or a test's. Throws Error (usage) for a number of ranks or tasks that is none.
Launcher find_launcher(const std::function<const char*(const char*)>& get);
/// Asks the system to kill this process when its parent ends: the launcher's process on this host.
void end_with_parent();
/// Throws Error with the remedy when a launcher started several processes but each is a world of its own.
void check_not_singletons(const Launcher&, int world_size, const std::string& mpi);

}  // namespace trireme
