#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "framework/io/file.h"
#include "framework/io/json.h"
#include "kernels/core/runtime.h"
#include "kernels/core/vendor.h"
#include "parallel/comm/world/clock_offsets.h"
#include "parallel/comm/world/compare.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/proc_files.h"

namespace trireme {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

bool resolves(const std::string& name) {
  addrinfo* found = nullptr;
  const bool does = ::getaddrinfo(name.c_str(), nullptr, nullptr, &found) == 0;
  if (found) ::freeaddrinfo(found);
  return does;
}

bool on_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::string rest = path ? path : "";
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    if (::access((rest.substr(0, end) + "/" + program).c_str(), X_OK) == 0) return true;
    rest.erase(0, end + 1);
  }
  return false;
}

Finding mpi() {
  Finding f{"MPI", Verdict::ok, mpi_version()};
  if (f.what.find("MPICH") == f.what.npos) {
    f.verdict = Verdict::warning;
    f.remedy = "several processes need a build with MPICH (README, Install)";
  } else if (!on_path("mpiexec") && !on_path("mpiexec.mpich")) {
    f.verdict = Verdict::warning;
    f.what += "; no mpiexec on PATH";
    f.remedy = "apt-get install mpich, or start ranks by srun, or as threads (--ranks)";
  } else if (f.what.find("4.0.2") != f.what.npos) {
    f.what +=
        "; this version may hang when it splits communicators of more ranks than cores, or finalizes over hosts; "
        "ranks wait no longer than TRIREME_TIMEOUT";
  }
  return f;
}

Finding job(World& world) {
  std::vector<std::string> in;
  for (const char* name : {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PMI_RANK", "PMIX_RANK"})
    if (const char* value = std::getenv(name)) in.push_back(fmt::format("{}={}", name, value));
  return {
      "job", Verdict::ok,
      fmt::format("{} rank{}, {} on this host ({}){}", world.size(), world.size() == 1 ? "" : "s", world.local_size(),
                  world.transport(), in.empty() ? "" : fmt::format("; {}", fmt::join(in, ", ")))};
}

/// Properties of this rank that should be equal on all ranks.
Json alike() {
  Json env = Json::object();
  for (char** each = environ; *each; ++each)
    for (const char* part : {"TRIREME_", "OMP_", "ONEDNN_", "DNNL_", "UCX_", "FI_", "NCCL_", "MPIR_CVAR_"})
      if (std::string text = *each; text.starts_with(part))
        env[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  std::error_code none;
  const std::string binary = std::filesystem::read_symlink("/proc/self/exe", none).string();
  std::string digest = "?";
  try {
    digest = fmt::format("{:08x}", crc32_of_file(binary));
  } catch (const Error&) {}
  return {{"binary", digest},     {"library", cpu_library()},
          {"MPI", mpi_version()}, {"processor", value_in("/proc/cpuinfo", "model name")},
          {"environment", env},   {"host", host_name()}};
}

}  // namespace

std::vector<Finding> check_job(World& world) {
  const std::vector<std::string> texts = gather_texts(world.comm(), json_text(alike(), NotUtf8::replaced));
  std::vector<Json> all;
  for (const std::string& text : texts) all.push_back(parse_json(text));
  const std::vector<double> ahead = clocks_ahead(
      world, [] { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); });
  const auto farthest = std::ranges::max_element(ahead, {}, [](double d) { return std::abs(d); });
  const double most = *farthest;
  const auto whose = farthest - ahead.begin();
  std::set<std::string> hosts;
  for (const Json& one : all) hosts.insert(one.value("host", ""));
  std::vector<std::string> lost;  // host names that this host cannot resolve
  for (const std::string& host : hosts)
    if (!resolves(host)) lost.push_back(host);
  const auto unresolved = gather_texts(world.comm(), fmt::format("{}", fmt::join(lost, " ")));
  if (!world.main()) return {};

  std::vector<Finding> found{mpi(), job(world)};
  const auto differ = [&](const char* what, Verdict verdict, const std::string& remedy) {
    for (std::size_t r = 1; r < all.size(); ++r)
      if (all[r][what] != all[0][what]) {
        const auto text = [&](const Json& j) { return j.is_string() ? j.get<std::string>() : json_text(j); };
        return found.push_back({what, verdict,
                                fmt::format("rank {} on {} has {}, rank 0 on {} has {}", r, all[r].value("host", ""),
                                            text(all[r][what]), all[0].value("host", ""), text(all[0][what])),
                                remedy, static_cast<int>(r)});
      }
    if (all.size() > 1) found.push_back({what, Verdict::ok, "the same on all ranks"});
  };
  differ("binary", Verdict::fault, "install the same build on all hosts, or start it from a shared file system");
  differ("library", Verdict::warning, "install the same libraries: bits differ between versions and instruction sets");
  differ("MPI", Verdict::fault, "install the same MPI on all hosts");
  differ("processor", Verdict::warning, "ranks wait for the slowest; bits differ between instruction sets");
  differ("environment", Verdict::warning, "export the same variables on all hosts (mpiexec -genvall)");
  std::map<std::string, std::vector<std::string>> where;  // unresolved names, with the hosts that cannot resolve them
  for (std::size_t r = 0; r < unresolved.size(); ++r)
    if (!unresolved[r].empty()) where[unresolved[r]].push_back(all[r].value("host", ""));
  for (const auto& [names, by] : where)
    found.push_back({"host names", hosts.size() > 1 ? Verdict::fault : Verdict::warning,
                     fmt::format("{} is not known on {}", names, by.front()),
                     "add it to DNS or /etc/hosts; MPI finds hosts by name"});
  if (where.empty()) found.push_back({"host names", Verdict::ok, fmt::format("{} resolve", fmt::join(hosts, ", "))});
  if (world.size() > 1)
    found.push_back({"clocks", std::abs(most) > 0.1 ? Verdict::warning : Verdict::ok,
                     fmt::format("at most {:.3g} ms apart (rank {})", std::abs(most) * 1e3, whose),
                     std::abs(most) > 0.1 ? "run chrony or ntpd on all hosts" : ""});
  return found;
}

}  // namespace trireme
