#include "parallel/comm/transport/launcher.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "kernels/core/error.h"

namespace trireme {

Launcher find_launcher(const std::function<const char*(const char*)>& get) {
  auto number = [&](const char* name) {
    const char* text = get(name);
    return text ? std::atoi(text) : 0;
  };
  // A task of a Slurm step; a batch script itself sees Slurm's variables too, but has no step, or a reserved number for
  // one.
  const char* step = get("SLURM_STEP_ID");
  const bool task = step && std::atoll(step) < 0xfffffff0ll && get("SLURM_PROCID");
  if (get("OMPI_COMM_WORLD_SIZE")) return {"mpirun (Open MPI)", std::max(1, number("OMPI_COMM_WORLD_SIZE"))};
  // Hydra starts its helpers through srun in an allocation, so what it says goes before Slurm's.
  if (get("PMI_SIZE")) return {task && !get("HYDI_CONTROL_FD") ? "srun" : "mpiexec", std::max(1, number("PMI_SIZE"))};
  if (get("MPI_LOCALNRANKS")) return {"mpiexec", std::max(1, number("MPI_LOCALNRANKS"))};
  if (task) return {"srun", std::max({1, number("SLURM_STEP_NUM_TASKS"), number("SLURM_NTASKS")})};
  return {};
}

void end_with_parent() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() == 1) ::raise(SIGKILL);  // it had ended before
}

void check_not_singletons(const Launcher& launcher, int world_size, const std::string& mpi) {
  if (launcher.ranks <= 1 || world_size > 1) return;
  std::string remedy = launcher.name == "srun"
                           ? "use `srun --mpi=pmi2`, which this MPI speaks (`srun --mpi=list` shows what Slurm has)"
                           : "use the mpiexec that belongs to this MPI";
  fail(ErrorKind::communicator, "world",
       "{} started {} processes, but every one believes to be rank 0 of 1: the launcher and this program's MPI ({}) do "
       "not know each other. {}",
       launcher.name, launcher.ranks, mpi, remedy);
}

}  // namespace trireme
