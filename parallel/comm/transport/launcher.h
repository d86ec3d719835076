// Launcher: how this process was started, according to its environment.
#pragma once
#include <functional>
#include <string>

namespace trireme {

/// The program that started this process.
struct Launcher {
  /// "mpiexec", "mpirun (Open MPI)", "srun", "torchrun" (any launcher that sets LOCAL_RANK and WORLD_SIZE),
  /// "horovodrun"; empty: none.
  std::string name;
  int ranks = 1;  ///< number of processes it started; 1 if it does not say
};

/// The name of a thread that each process has once all ranks have joined MPI. `trireme train -n` looks for it.
inline constexpr char joined_thread[] = "trireme-mpi";

/// Detects the launcher. get: std::getenv, or a replacement in tests. Throws Error (usage) for an invalid number of
/// ranks or tasks.
Launcher find_launcher(const std::function<const char*(const char*)>& get);
/// Lets the system kill this process when its parent, the launcher's process on this host, exits.
void end_with_parent();
/// Throws Error with the remedy if a launcher started several processes but each has a separate world of one rank.
void check_not_singletons(const Launcher&, int world_size, const std::string& mpi);

}  // namespace trireme
