#include "parallel/comm/transport/launcher.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <iterator>

#include "kernels/core/environment.h"
#include "kernels/core/error.h"
#include "kernels/core/text.h"

namespace trireme {

Launcher find_launcher(const std::function<const char*(const char*)>& get) {
  auto number = [&](const char* name) {
    const char* text = get(name);
    return text ? static_cast<std::int64_t>(number_of_variable(name, text)) : 0;
  };
  // A task of a Slurm step. A batch script sees Slurm's variables, too, but has no step, or a reserved step number.
  const bool task = get("SLURM_STEP_ID") && number("SLURM_STEP_ID") < 0xfffffff0ll && get("SLURM_PROCID");
  const auto ranks = [&](auto... names) { return static_cast<int>(std::max({std::int64_t{1}, number(names)...})); };
  if (get("OMPI_COMM_WORLD_SIZE")) return {"mpirun (Open MPI)", ranks("OMPI_COMM_WORLD_SIZE")};
  // In an allocation Hydra starts its helpers with srun, so its variables are checked before Slurm's.
  if (get("PMI_SIZE")) return {task && !get("HYDI_CONTROL_FD") ? "srun" : "mpiexec", ranks("PMI_SIZE")};
  if (get("MPI_LOCALNRANKS")) return {"mpiexec", ranks("MPI_LOCALNRANKS")};
  // Tasks of the step: SLURM_NTASKS may count the whole job.
  if (task) return {"srun", ranks(get("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS")};
  // Launchers without MPI. A cluster may set WORLD_SIZE alone, for processes that start others.
  for (const auto& [name, of_process, of_job] :
       {std::array{"torchrun", "LOCAL_RANK", "WORLD_SIZE"}, std::array{"horovodrun", "HOROVOD_SIZE", "HOROVOD_SIZE"}})
    if (int count = 0; get(of_process) && get(of_job) && parse_number(get(of_job), count) && count > 1)
      return {name, count};
  return {};
}

namespace {
pid_t launcher = 0;  // parent of this process when end_with_parent() was called
void on_end_of_parent_thread(int) {
  if (::getppid() != launcher) ::kill(::getpid(), SIGKILL);
}
}  // namespace

void end_with_parent() {
  launcher = ::getppid();
  int number = SIGKILL;
  std::error_code none;
  const std::filesystem::directory_iterator threads(fmt::format("/proc/{}/task", launcher), none), end;
  if (!none && std::distance(threads, end) > 1) {
    // The system sends the signal when the parent's THREAD that started this process ends. The parent may live on.
    number = SIGRTMAX;
    struct sigaction action {};
    action.sa_handler = on_end_of_parent_thread;
    action.sa_flags = SA_RESTART;
    ::sigaction(number, &action, nullptr);
  }
  ::prctl(PR_SET_PDEATHSIG, number);
  if (::getppid() == 1) ::raise(SIGKILL);  // the parent had ended before
}

void check_not_singletons(const Launcher& launcher, int world_size, const std::string& mpi) {
  if (launcher.ranks <= 1 || world_size > 1) return;
  std::string remedy =
      launcher.name == "srun" ? "use `srun --mpi=pmi2`, which this MPI speaks (`srun --mpi=list` shows what Slurm has)"
      : launcher.name == "torchrun"   ? "use mpiexec or srun; for a process that is to run alone, unset WORLD_SIZE"
      : launcher.name == "horovodrun" ? "use mpiexec or srun; for a process that is to run alone, unset HOROVOD_SIZE"
                                      : "use the mpiexec that belongs to this MPI";
  fail(ErrorKind::communicator, "world",
       "{} started {} processes, but each is rank 0 of 1: the launcher and this program's MPI ({}) do "
       "not match; {}",
       launcher.name, launcher.ranks, mpi, remedy);
}

}  // namespace trireme
