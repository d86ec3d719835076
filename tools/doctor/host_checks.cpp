#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "kernels/core/backend.h"
#include "kernels/core/environment.h"
#include "kernels/core/runtime.h"
#include "kernels/core/suggest.h"
#include "kernels/core/vendor.h"
#include "parallel/comm/world/placement.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/proc_files.h"

namespace trireme {
namespace {

constexpr double gib = 1 << 30;

Finding processor() {
  const std::string flags = " " + value_in("/proc/cpuinfo", "flags") + " ";
  std::vector<std::string> has;
  for (const char* flag : {"avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16"})
    if (flags.find(fmt::format(" {} ", flag)) != flags.npos) has.emplace_back(flag);
  Finding f{"processor", Verdict::ok,
            fmt::format("{}: {}; {}", value_in("/proc/cpuinfo", "model name"), fmt::join(has, " "), cpu_library())};
  for (const char* name : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"})
    if (const char* isa = std::getenv(name)) {
      f.verdict = Verdict::warning;
      f.what += fmt::format("; {}={} hides instructions from oneDNN", name, isa);
      f.remedy = fmt::format("unset {}, unless results must match an older processor bit for bit", name);
    }
  if (has.empty() && f.verdict == Verdict::ok) {
    f.verdict = Verdict::warning;
    f.what += "; no AVX2";
    f.remedy = "expect a quarter of the speed, or less";
  }
  return f;
}

/// Faults of the oneDNN in use that the kernels avoid (kernels/cpu/conv/conv_faults.h).
Finding onednn() {
  const std::string library = cpu_library();
  const bool old = library.find("oneDNN 2.") != library.npos || library.find("oneDNN v2.") != library.npos;
  return {"oneDNN", Verdict::ok,
          old ? "2.x: its wrong depthwise, brgconv and AMX bf16 convolutions are not used"
              : "its bf16 weight gradients that read past their memory are not used"};
}

Finding usable_cores() {
  const std::vector<CpuCore> all = find_cores(usable_cpus());
  Finding f{"cores", Verdict::ok,
            fmt::format("{} usable{}, {} threads a process", cores(),
                        all.empty() ? "" : fmt::format(" ({}; {} without hyper-threads)", to_string(all), all.size()),
                        threads())};
  if (const char* omp = std::getenv("OMP_NUM_THREADS"); omp && std::atoi(omp) > cores()) {
    f.verdict = Verdict::warning;
    f.what += fmt::format("; OMP_NUM_THREADS={} is more than the usable cores", omp);
    f.remedy = "unset OMP_NUM_THREADS: ranks divide the cores among them";
  }
  const std::string quota = first_line("/sys/fs/cgroup/cpu.max");
  const std::size_t blank = quota.find(' ');
  if (!quota.starts_with("max") && blank != quota.npos) {
    const double given = number_in(quota) / number_in(quota.substr(blank));
    f.what += fmt::format("; the container may use {:.1f}", given);
    if (given < cores() - 0.5) {
      f.verdict = Verdict::warning;
      f.remedy =
          fmt::format("--parallel.threads {}, or more of the container's CPU", std::max(1, static_cast<int>(given)));
    }
  }
  return f;
}

Finding memory() {
  const double all = number_in(value_in("/proc/meminfo", "MemTotal")) / (1 << 20),
               free = number_in(value_in("/proc/meminfo", "MemAvailable")) / (1 << 20);
  Finding f{"memory", Verdict::ok, fmt::format("{:.1f} GiB of {:.1f} available", free, all)};
  const std::string most = first_line("/sys/fs/cgroup/memory.max");
  if (!most.empty() && most != "max") f.what += fmt::format("; the container may use {:.1f}", number_in(most) / gib);
  if (free < 1) {
    f.verdict = Verdict::warning;
    f.remedy = "stop other programs; without free memory the kernel kills a training (signal 9)";
  }
  return f;
}

Finding limits() {
  rlimit files{}, locked{}, core{}, size{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  ::getrlimit(RLIMIT_MEMLOCK, &locked);
  ::getrlimit(RLIMIT_CORE, &core);
  ::getrlimit(RLIMIT_FSIZE, &size);
  const auto text = [](rlim_t n) { return n == RLIM_INFINITY ? std::string("unlimited") : std::to_string(n); };
  Finding f{"limits", Verdict::ok,
            fmt::format("{} open files, {} locked bytes, core files of {}", text(files.rlim_cur), text(locked.rlim_cur),
                        text(core.rlim_cur))};
  if (files.rlim_cur < 1024) {
    f.verdict = Verdict::warning;
    f.remedy = "ulimit -n 4096: data sets of shards, and sockets between hosts, need open files";
  }
  if (size.rlim_cur != RLIM_INFINITY) {
    f.verdict = Verdict::warning;
    f.what += fmt::format(", files of {} bytes at most", text(size.rlim_cur));
    f.remedy = "ulimit -f unlimited: a checkpoint larger than that cannot be written";
  }
  return f;
}

/// MPICH files in /dev/shm that no process has mapped.
std::vector<std::string> left_behind() {
  std::vector<std::string> found;
  std::error_code none;
  for (std::filesystem::directory_iterator it("/dev/shm", none), end; !none && it != end; it.increment(none))
    if (const std::string name = it->path().filename().string(); name.starts_with("mpich_shar_tmp"))
      found.push_back(name);
  if (found.empty()) return found;
  for (std::filesystem::directory_iterator it("/proc", none), end; !none && it != end; it.increment(none)) {
    std::ifstream maps(it->path() / "maps");
    for (std::string line; std::getline(maps, line);)
      if (line.find("/dev/shm/") != line.npos)
        std::erase_if(found, [&](const std::string& name) { return line.ends_with(name); });
  }
  return found;
}

Finding shared_memory() {
  struct statvfs room {};
  if (::statvfs("/dev/shm", &room) != 0)
    return {"shared memory", Verdict::warning, "no /dev/shm",
            "mount one; without it ranks of a host communicate slowly (as with TRIREME_SHARED_MEMORY=0)"};
  const double free = static_cast<double>(room.f_bavail) * static_cast<double>(room.f_frsize);
  Finding f{"shared memory", Verdict::ok, fmt::format("{:.0f} MiB free in /dev/shm", free / (1 << 20))};
  if (free < 128 * (1 << 20)) {
    f.verdict = Verdict::warning;
    f.remedy = "docker run --shm-size=2g, or --ipc=host: MPI and its ranks put their messages there";
  } else if (const auto left = left_behind(); !left.empty()) {
    f.verdict = Verdict::warning;
    f.what += fmt::format("; left there by MPI jobs that were killed: {}", fmt::join(left, ", "));
    f.remedy = fmt::format("rm /dev/shm/{}", fmt::join(left, " /dev/shm/"));
  }
  return f;
}

/// Whether a process may read the memory of a sibling process, as ranks of a host do. Tries it.
Finding other_memory() {
  static char word[8] = "trireme";
  std::array<int, 2> told{};
  (void)!::pipe(told.data());
  const ::pid_t read_from = ::fork();  // the two children only make system calls
  if (read_from == 0) {
    ::close(told[1]);
    char end = 0;
    (void)!::read(told[0], &end, 1);
    ::_exit(0);
  }
  const ::pid_t reader = ::fork();
  if (reader == 0) {
    char got[8] = {};
    iovec mine{got, sizeof got}, theirs{word, sizeof word};
    const bool same = ::process_vm_readv(read_from, &mine, 1, &theirs, 1, 0) == sizeof got && got[0] == 't';
    ::_exit(same ? 0 : 1);
  }
  int status = 1;
  ::waitpid(reader, &status, 0);
  ::close(told[0]);
  ::close(told[1]);
  ::waitpid(read_from, nullptr, 0);
  const std::string scope = first_line("/proc/sys/kernel/yama/ptrace_scope");
  Finding f{"process memory", Verdict::ok, "ranks of a host may read each other's memory"};
  if (status != 0) {
    f.verdict = Verdict::warning;
    f.what = fmt::format("ranks of a host may not read each other's memory{}; large messages are copied twice",
                         scope.empty() ? "" : fmt::format(" (ptrace_scope {})", scope));
    f.remedy = "sysctl kernel.yama.ptrace_scope=0, or a container with --cap-add=SYS_PTRACE";
  }
  return f;
}

Finding devices() {
  const Backend& gpus = open_backend(DeviceKind::cuda);
  if (gpus.devices > 0) return {"GPUs", Verdict::ok, fmt::format("{}: {}", gpus.library, fmt::join(gpus.names, ", "))};
  Finding f{"GPUs", Verdict::ok, fmt::format("none to use: {}", gpus.absent)};
  std::error_code none;
  if (std::filesystem::exists("/dev/nvidia0", none)) {
    f.verdict = Verdict::fault;
    f.what = fmt::format("there is a GPU that cannot be used: {}", gpus.absent);
    f.remedy = "install the driver's libraries, and the package with the CUDA backend (README, GPUs)";
  }
  return f;
}

Finding clock_of_host() {
  timex state{};
  const int status = ::adjtimex(&state);
  const bool off = status == TIME_ERROR || (state.status & STA_UNSYNC) != 0;
  if (status == -1) return {"clock", Verdict::ok, "the container does not show whether it is synchronized"};
  return {"clock", off ? Verdict::warning : Verdict::ok, off ? "not synchronized" : "synchronized",
          off ? "run chrony or ntpd; times in logs and traces of several hosts do not match" : ""};
}

Finding user() {
  std::error_code none;
  const bool container =
      std::filesystem::exists("/.dockerenv", none) || std::filesystem::exists("/run/.containerenv", none);
  if (::geteuid() != ::getuid())
    return {"user", Verdict::fault, "the binary is set-user-ID",
            "run chmod u-s; the binary loads libraries and reads files"};
  if (::geteuid() != 0 || container)
    return {"user", Verdict::ok, ::geteuid() == 0 ? "root of a container" : "not root"};
  return {"user", Verdict::warning, "root", "train as an ordinary user; a training needs no root rights"};
}

Finding environment() {
  std::vector<std::string> known;
  for (const EnvironmentVariable& v : environment_variables()) known.emplace_back(v.name);
  Finding f{"environment", Verdict::ok, ""};
  for (char** each = environ; *each; ++each) {
    const std::string text = *each, name = text.substr(0, text.find('='));
    if (!name.starts_with("TRIREME_")) continue;
    f.what += (f.what.empty() ? "" : ", ") + text;
    if (std::ranges::find(known, name) != known.end()) continue;
    f.verdict = Verdict::warning;
    f.remedy +=
        fmt::format("{}{} is not a known variable{}", f.remedy.empty() ? "" : "; ", name, did_you_mean(name, known));
  }
  if (f.what.empty()) f.what = "no variable TRIREME_... is set";
  return f;
}

}  // namespace

std::vector<Finding> check_host() {
  return {other_memory(),  processor(), onednn(),        usable_cores(), memory(),     limits(),
          shared_memory(), devices(),   clock_of_host(), user(),         environment()};
}

}  // namespace trireme
