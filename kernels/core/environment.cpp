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

// Rows of the table.
using Text = std::string_view;
constexpr Variable seconds(const char* name, double least, double most, Text fallback, Text unit, Text meaning) {
  return {name, Variable::seconds, least, most, "", fallback, unit, meaning};
}
constexpr Variable whole(const char* name, double least, double most, Text fallback, Text unit, Text meaning) {
  return {name, Variable::whole, least, most, "", fallback, unit, meaning};
}
constexpr Variable word(const char* name, Text words, Text fallback, Text meaning) {
  return {name, Variable::word, 0, 0, words, fallback, "", meaning};
}
constexpr Variable text(const char* name, Text fallback, Text unit, Text meaning) {
  return {name, Variable::text, 0, 0, "", fallback, unit, meaning};
}
constexpr Variable other(const char* name, Text fallback, Text unit, Text meaning) {
  return {name, Variable::other, 0, 0, "", fallback, unit, meaning};
}

constexpr std::array variables{
    seconds("TRIREME_TIMEOUT", 0.001, 1e9, "300", "s",
            "Time that a rank waits for other ranks before the job is stopped."),
    word("TRIREME_SHARED_MEMORY", "0, 1, staged, direct", "1",
         "How ranks of one host reduce: 0 through MPI, staged through a shared buffer, direct from each other's "
         "memory, 1 the fastest that the host allows."),
    word("TRIREME_COMPARE_CALLS", "0, 1", "1",
         "Ranks check that all of them make the same call; 0 saves a small message per call between hosts."),
    word("TRIREME_FENCE", "0, 1", "0",
         "For debugging: 1 reports a oneDNN kernel that writes past the end of its scratch memory."),
    text("TRIREME_DATA", "none", "folder", "Folder that is searched first for installed data sets."),
    text("TRIREME_CUDA_PLUGIN", "libtrireme_cuda.so", "file",
         "CUDA backend to load; the default is next to the library. Its code runs in the process; a set-user-ID "
         "program ignores the variable."),
    word("TRIREME_CUDA_VIRTUAL_MEMORY", "on, off", "on",
         "GPU memory grows in chunks of virtual memory; off uses cudaMalloc only."),
    text("TRIREME_PLAN_CACHE", "~/.cache/trireme", "folder",
         "Folder that keeps cuDNN's measured plans between runs; the word off keeps none."),
    seconds("TRIREME_PLAN_SECONDS", 0, 1e9, "2", "s",
            "Time for measuring cuDNN's plans in a process; 0 takes the first plan that works."),
    other("OMP_NUM_THREADS", "the cores", "threads", "Most threads per rank, unless parallel.threads is given."),
    other("ONEDNN_MAX_CPU_ISA", "none", "name", "Newest instruction set that oneDNN may use, for example AVX2."),
    other("DNNL_MAX_CPU_ISA", "none", "name", "Older name of ONEDNN_MAX_CPU_ISA."),
    other("XDG_CACHE_HOME", "~/.cache", "folder", "Folder of caches; cuDNN's plans are kept in its subfolder trireme."),
    other("TERM", "none", "name", "Kind of the terminal; on dumb, progress is printed as lines instead of a bar."),
    seconds("SLURM_JOB_END_TIME", 0, year_9999, "none", "s since 1970",
            "End of the Slurm job: a training saves and stops before it; 0 means no end."),
    other("SLURM_JOB_ID", "none", "number", "A Slurm allocation exists: trireme train -n starts ranks with srun."),
    whole("SLURM_STEP_ID", 0, largest_step, "none", "number", "The process belongs to a Slurm step (srun)."),
    whole("SLURM_PROCID", 0, largest_int, "none", "rank", "Rank of the process in its Slurm step."),
    whole("SLURM_STEP_NUM_TASKS", 1, largest_int, "none", "ranks", "Ranks that srun started."),
    whole("SLURM_NTASKS", 1, largest_int, "none", "ranks",
          "Ranks of the Slurm job, if the step does not name its own."),
    whole("OMPI_COMM_WORLD_SIZE", 1, largest_int, "none", "ranks", "Ranks that Open MPI's mpirun started."),
    whole("OMPI_COMM_WORLD_LOCAL_SIZE", 1, largest_int, "none", "ranks",
          "Ranks that Open MPI's mpirun started on this host."),
    whole("PMI_SIZE", 1, largest_int, "none", "ranks", "Ranks that MPICH's mpiexec or srun started."),
    whole("PMI_FD", 0, largest_int, "none", "number", "File descriptor of the connection to MPICH's mpiexec."),
    whole("MPI_LOCALNRANKS", 1, largest_int, "none", "ranks", "Ranks that MPICH's mpiexec started on this host."),
    other("WORLD_SIZE", "none", "ranks",
          "With LOCAL_RANK: processes that torchrun started. Trireme refuses several that MPI does not know."),
    other("LOCAL_RANK", "none", "rank", "Rank on this host, as torchrun counts."),
    other("HOROVOD_SIZE", "none", "ranks",
          "Processes that horovodrun started. Trireme refuses several that MPI does not know."),
    other("HYDI_CONTROL_FD", "none", "number", "MPICH's mpiexec started the process, not srun."),
    text("HYDRA_LAUNCHER_EXEC", "ssh", "program",
         "Program that trireme train -n and mpiexec use to reach other hosts."),
    text("NCCL_HOSTID", "the host's name", "name",
         "Name of the host for NCCL. Ranks under different names may share a GPU."),
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
