#include "kernels/core/environment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "kernels/core/error.h"
#include "kernels/core/text.h"

namespace trireme {
namespace {

using Variable = EnvironmentVariable;
constexpr double year_9999 = 253402300799, largest_int = 2147483647, largest_step = 4294967295;

constexpr std::array variables{
    Variable{.name = "TRIREME_TIMEOUT",
             .type = Variable::seconds,
             .least = 0.001,
             .most = 1e9,
             .fallback = "300",
             .unit = "s",
             .meaning = "Time that a rank waits for other ranks before the job is stopped."},
    Variable{
        .name = "TRIREME_SHARED_MEMORY",
        .type = Variable::word,
        .words = "0, 1, staged, direct",
        .fallback = "1",
        .meaning =
            "How ranks of one host reduce: 0 through MPI, staged through a shared buffer, direct from each other's "
            "memory, 1 the fastest that the host allows."},
    Variable{
        .name = "TRIREME_COMPARE_CALLS",
        .type = Variable::word,
        .words = "0, 1",
        .fallback = "1",
        .meaning = "Ranks check that all of them make the same call; 0 saves a small message per call between hosts."},
    Variable{.name = "TRIREME_FENCE",
             .type = Variable::word,
             .words = "0, 1",
             .fallback = "0",
             .meaning = "For debugging: 1 reports a oneDNN kernel that writes past the end of its scratch memory."},
    Variable{.name = "TRIREME_DATA",
             .type = Variable::text,
             .unit = "folder",
             .meaning = "Folder that is searched first for installed data sets."},
    Variable{
        .name = "TRIREME_CUDA_PLUGIN",
        .type = Variable::text,
        .fallback = "libtrireme_cuda.so",
        .unit = "file",
        .meaning =
            "CUDA backend to load; the default is next to the library. Its code runs in the process; a set-user-ID "
            "program ignores the variable."},
    Variable{.name = "TRIREME_CUDA_VIRTUAL_MEMORY",
             .type = Variable::word,
             .words = "on, off",
             .fallback = "on",
             .meaning = "GPU memory grows in chunks of virtual memory; off uses cudaMalloc only."},
    Variable{.name = "TRIREME_PLAN_CACHE",
             .type = Variable::text,
             .fallback = "~/.cache/trireme",
             .unit = "folder",
             .meaning = "Folder that keeps cuDNN's measured plans between runs; the word off keeps none."},
    Variable{.name = "TRIREME_PLAN_SECONDS",
             .type = Variable::seconds,
             .most = 1e9,
             .fallback = "2",
             .unit = "s",
             .meaning = "Time for measuring cuDNN's plans in a process; 0 takes the first plan that works."},
    Variable{.name = "OMP_NUM_THREADS",
             .type = Variable::other,
             .fallback = "the cores",
             .unit = "threads",
             .meaning = "Most threads per rank, unless parallel.threads is given."},
    Variable{.name = "ONEDNN_MAX_CPU_ISA",
             .type = Variable::other,
             .unit = "name",
             .meaning = "Newest instruction set that oneDNN may use, for example AVX2."},
    Variable{.name = "DNNL_MAX_CPU_ISA",
             .type = Variable::other,
             .unit = "name",
             .meaning = "Older name of ONEDNN_MAX_CPU_ISA."},
    Variable{.name = "XDG_CACHE_HOME",
             .type = Variable::other,
             .fallback = "~/.cache",
             .unit = "folder",
             .meaning = "Folder of caches; cuDNN's plans are kept in its subfolder trireme."},
    Variable{.name = "TERM",
             .type = Variable::other,
             .unit = "name",
             .meaning = "Kind of the terminal; on dumb, progress is printed as lines instead of a bar."},
    Variable{.name = "SLURM_JOB_END_TIME",
             .type = Variable::seconds,
             .most = year_9999,
             .unit = "s since 1970",
             .meaning = "End of the Slurm job: a training saves and stops before it; 0 means no end."},
    Variable{.name = "SLURM_JOB_ID",
             .type = Variable::other,
             .unit = "number",
             .meaning = "A Slurm allocation exists: trireme launch starts ranks with srun."},
    Variable{.name = "SLURM_STEP_ID",
             .type = Variable::whole,
             .most = largest_step,
             .unit = "number",
             .meaning = "The process belongs to a Slurm step (srun)."},
    Variable{.name = "SLURM_PROCID",
             .type = Variable::whole,
             .most = largest_int,
             .unit = "rank",
             .meaning = "Rank of the process in its Slurm step."},
    Variable{.name = "SLURM_STEP_NUM_TASKS",
             .type = Variable::whole,
             .least = 1,
             .most = largest_int,
             .unit = "ranks",
             .meaning = "Ranks that srun started."},
    Variable{.name = "SLURM_NTASKS",
             .type = Variable::whole,
             .least = 1,
             .most = largest_int,
             .unit = "ranks",
             .meaning = "Ranks of the Slurm job, if the step does not name its own."},
    Variable{.name = "OMPI_COMM_WORLD_SIZE",
             .type = Variable::whole,
             .least = 1,
             .most = largest_int,
             .unit = "ranks",
             .meaning = "Ranks that Open MPI's mpirun started."},
    Variable{.name = "OMPI_COMM_WORLD_LOCAL_SIZE",
             .type = Variable::whole,
             .least = 1,
             .most = largest_int,
             .unit = "ranks",
             .meaning = "Ranks that Open MPI's mpirun started on this host."},
    Variable{.name = "PMI_SIZE",
             .type = Variable::whole,
             .least = 1,
             .most = largest_int,
             .unit = "ranks",
             .meaning = "Ranks that MPICH's mpiexec or srun started."},
    Variable{.name = "PMI_FD",
             .type = Variable::whole,
             .most = largest_int,
             .unit = "number",
             .meaning = "File descriptor of the connection to MPICH's mpiexec."},
    Variable{.name = "MPI_LOCALNRANKS",
             .type = Variable::whole,
             .least = 1,
             .most = largest_int,
             .unit = "ranks",
             .meaning = "Ranks that MPICH's mpiexec started on this host."},
    Variable{
        .name = "WORLD_SIZE",
        .type = Variable::other,
        .unit = "ranks",
        .meaning = "With LOCAL_RANK: processes that torchrun started. Trireme refuses several that MPI does not know."},
    Variable{.name = "LOCAL_RANK",
             .type = Variable::other,
             .unit = "rank",
             .meaning = "Rank on this host, as torchrun counts."},
    Variable{.name = "HOROVOD_SIZE",
             .type = Variable::other,
             .unit = "ranks",
             .meaning = "Processes that horovodrun started. Trireme refuses several that MPI does not know."},
    Variable{.name = "HYDI_CONTROL_FD",
             .type = Variable::other,
             .unit = "number",
             .meaning = "MPICH's mpiexec started the process, not srun."},
    Variable{.name = "HYDRA_LAUNCHER_EXEC",
             .type = Variable::text,
             .fallback = "ssh",
             .unit = "program",
             .meaning = "Program that trireme launch and mpiexec use to reach other hosts."},
    Variable{.name = "NCCL_HOSTID",
             .type = Variable::text,
             .fallback = "the host's name",
             .unit = "name",
             .meaning = "Name of the host for NCCL. Ranks under different names may share a GPU."},
};

const Variable& find(const char* name) {
  const auto at = std::ranges::find(variables, std::string_view(name), &Variable::name);
  check(at != variables.end(), ErrorKind::internal, "environment", "{} is not in the table of variables", name);
  return *at;
}

[[noreturn]] void refuse(const Variable& v, std::string_view value, const std::string& expected) {
  fail("environment", "{} is \"{:.100}\", expected {}; set it so, or unset it", v.name, value, expected);
}

double number_in(const Variable& v, std::string_view value) {
  double number = 0;
  const bool whole = v.type == Variable::whole;
  const bool digits = !whole || std::ranges::all_of(value, [](char c) { return '0' <= c && c <= '9'; });
  if (!digits || !parse_number(value, number) || !(number >= v.least && number <= v.most))
    refuse(v, value, fmt::format("a {}number from {} to {:.0f}", whole ? "whole " : "", v.least, v.most));
  return number;
}

void check_value(const Variable& v, std::string_view value) {
  if (v.type == Variable::seconds || v.type == Variable::whole) {
    (void)number_in(v, value);
  } else if (v.type == Variable::word) {
    bool known = false;
    for (const std::string& word : split_text(v.words, ',')) known = known || trimmed(word) == value;
    if (!known) refuse(v, value, fmt::format("one of {}", v.words));
  } else if (v.type == Variable::text && value.empty()) {
    refuse(v, value, "a text");
  }
}

}  // namespace

std::span<const EnvironmentVariable> environment_variables() { return variables; }

void check_environment() {
  for (const Variable& v : variables)
    if (const char* value = std::getenv(v.name)) check_value(v, value);
}

std::optional<double> environment_number(const char* name) {
  const char* value = std::getenv(name);
  return value ? std::optional(number_in(find(name), value)) : std::nullopt;
}

std::optional<std::string> environment_text(const char* name) {
  const char* value = std::getenv(name);
  if (!value) return {};
  check_value(find(name), value);
  return value;
}

double number_of_variable(const char* name, std::string_view value) { return number_in(find(name), value); }

}  // namespace trireme
