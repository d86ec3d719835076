#include "tools/launch/supervisor.h"

#include <fmt/chrono.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "framework/io/checkpoint.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "framework/io/options.h"
#include "tools/launch/job.h"
#include "tools/training/run_dir.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void say(const std::string& text) { fmt::print(stderr, "launch: {}\n", text); }

/// Result of one attempt.
struct Attempt {
  std::time_t started = std::time(nullptr);
  int ranks = 0, status = 0;
  double seconds = 0;
  std::string reason = {};  ///< why it failed; empty: success
  int signal = 0;           ///< signal that ended the supervision; 0: none
  bool asked = false;       ///< asked to stop by a signal
};

/// The result file that the training wrote at its end; an empty object if there is none.
Json result_of(const std::string& run) {
  const std::string path = run + "/" + result_file;
  std::error_code none;
  const Json result = fs::exists(path, none) ? parse_json(read_text(path, std::size_t{1} << 20)) : Json::object();
  return result.is_object() ? result : Json::object();
}

/// Detects a change of the result file, which every training removes at its start and writes at its end.
struct ResultMark {
  explicit ResultMark(const std::string& run) {
    struct stat about {};
    if (::stat((run + "/" + result_file).c_str(), &about) == 0) {
      file = about.st_ino;
      seconds = about.st_mtim.tv_sec;
      nanoseconds = about.st_mtim.tv_nsec;
    }
  }
  std::uint64_t file = 0;
  std::int64_t seconds = 0, nanoseconds = 0;
  bool operator==(const ResultMark&) const = default;
};

std::string ended_by(const std::vector<std::string>& command, int status) {
  if (command[0] == "mpiexec" && status > 0 && status < 32)  // mpiexec reports both alike
    return fmt::format("a rank ended with status {0}, or by signal {0} ({1})", status, ::strsignal(status));
  return status > 128 && status <= 192 ? fmt::format("ended by signal {} ({})", status - 128, ::strsignal(status - 128))
         : kind_of_status(status)
             ? fmt::format("ended with status {}, an error of kind {}", status, name_of(*kind_of_status(status)))
             : fmt::format("ended with status {}", status);
}

/// Runs one attempt. Forwards signals. Kills a job that ignores them, or that has lost a process.
Attempt attempt(const LaunchOptions& options, const std::vector<Host>& hosts, int ranks, int number) {
  Attempt now{.ranks = ranks};
  const auto start = Clock::now();
  std::optional<Clock::time_point> asked;
  const auto command = command_of(options, hosts, ranks);
  say(fmt::format("attempt {}: {}", number, fmt::join(command, " ")));
  Job job(command);
  int interrupts = 0;
  while (!job.poll()) {
    const int signal = next_signal(0.2);
    if (signal == SIGINT && ++interrupts > 1) {
      now.signal = signal;
      now.reason = "interrupted twice";
      break;
    }
    if (signal != 0) {
      if (!asked) asked = Clock::now();
      job.signal(signal == SIGUSR1 ? SIGUSR1 : SIGTERM);
    }
    if (asked && seconds_since(*asked) > options.grace) {
      now.reason = fmt::format("it did not stop within {} s of being asked", options.grace);
      break;
    }
    if (now.reason = job.hung_start(command[0] == "mpiexec" || command[0] == "srun" ? ranks : 1); !now.reason.empty())
      break;
    if (const double alone = job.incomplete(); alone > options.grace) {
      now.reason = fmt::format("a process has ended, and the others continued for {:.0f} s", alone);
      break;
    }
  }
  now.status = job.status();
  now.seconds = seconds_since(start);
  now.asked = asked.has_value();
  if (now.reason.empty() && now.status != 0 && now.status != 85)
    now.reason = !job.last_words().empty() ? job.last_words() : ended_by(command, now.status);
  return now;
}

/// Sleeps. Returns early with a signal.
int pause(double seconds) {
  for (const auto start = Clock::now(); seconds_since(start) < seconds;)
    if (const int signal = next_signal(0.1)) return signal;
  return 0;
}

Json attempt_json(const Attempt& a, std::int64_t step) {
  Json json{{"started", fmt::format("{:%FT%TZ}", fmt::gmtime(a.started))},
            {"seconds", a.seconds},
            {"ranks", a.ranks},
            {"status", a.status},
            {"step", step}};
  if (!a.reason.empty()) json["reason"] = a.reason;
  if (const auto kind = kind_of_status(a.status)) json["kind"] = name_of(*kind);
  return json;
}

/// Step of the newest checkpoint, from its name; 0: none.
std::int64_t saved_step(const std::string& run) {
  std::int64_t step = 0;
  std::error_code none;
  for (fs::directory_iterator it(run + "/checkpoints", none), end; !none && it != end; it.increment(none)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with("step_") && it->path().extension().empty())
      step = std::max<std::int64_t>(step, std::atoll(name.c_str() + 5));
  }
  return step;
}

}  // namespace

std::vector<std::string> command_of(const LaunchOptions& options, const std::vector<Host>& hosts, int ranks) {
  std::vector<std::string> command;
  const bool allocated = std::getenv("SLURM_JOB_ID") && !std::getenv("SLURM_STEP_ID");
  const std::string launcher = options.launcher != "auto" ? options.launcher
                               : !hosts.empty()           ? "mpiexec"
                               : allocated                ? "srun"
                               : ranks > 1                ? "mpiexec"
                                                          : "threads";
  if (launcher != "mpiexec" && !hosts.empty())
    throw OptionError(
        fmt::format("launch: hosts are for mpiexec; {} runs on this host; leave out the hosts", launcher));
  if (launcher == "mpiexec") command = {"mpiexec", "-n", std::to_string(ranks)};
  if (launcher == "mpiexec" && !hosts.empty()) command.insert(command.end(), {"-hosts", to_string(hosts)});
  if (launcher == "srun")
    command = {"srun", "--mpi=pmi2", "--kill-on-bad-exit=0", "--wait=30", "-n", std::to_string(ranks)};
  command.insert(command.end(), options.program.begin(), options.program.end());
  command.insert(command.end(), options.go_on.begin(), options.go_on.end());
  if (launcher == "threads" && ranks > 1) command.insert(command.end(), {"--parallel.ranks", std::to_string(ranks)});
  return command;
}

std::vector<Host> reachable(const std::vector<Host>& hosts) {
  const char* own = std::getenv("HYDRA_LAUNCHER_EXEC");
  char here[256] = {};
  ::gethostname(here, sizeof here - 1);
  std::vector<Host> found;
  for (const Host& host : hosts) {
    std::vector<std::string> command{own ? own : "ssh"};
    if (!own) command.insert(command.end(), {"-o", "BatchMode=yes", "-o", "ConnectTimeout=5"});
    command.insert(command.end(), {host.name, "true"});
    if (host.name == here || host.name == "localhost" || host.name == "127.0.0.1" || run_quietly(command) == 0)
      found.push_back(host);
  }
  return found;
}

bool may_pass(int status) {
  const std::optional<ErrorKind> kind = kind_of_status(status);
  return kind != ErrorKind::usage && kind != ErrorKind::data && kind != ErrorKind::numerics;
}

int supervise(const LaunchOptions& options) {
  adopt_orphans();
  const int wanted = options.ranks > 0 ? options.ranks : std::max(1, slots_of(options.hosts));
  const int least = options.min_ranks > 0 ? options.min_ranks : wanted;
  std::vector<Host> hosts = first_slots(options.hosts, wanted);
  int ranks = wanted, status = 1;
  Json attempts = Json::array();
  std::string exit;
  bool wrote = true;  // whether the last attempt wrote a result
  for (int restarts = 0;; ++restarts) {
    if (restarts > 0 && !options.hosts.empty()) {
      const std::vector<Host> there = reachable(options.hosts);
      ranks = std::min(wanted, slots_of(there));
      if (ranks < least) {
        exit = fmt::format("hosts with {} ranks are left, {} are needed", ranks, least);
        break;
      }
      hosts = first_slots(there, ranks);
      if (ranks < wanted) say(fmt::format("continuing with {} of {} ranks: {}", ranks, wanted, to_string(hosts)));
    }
    const ResultMark before(options.run_dir);
    Attempt last = attempt(options, hosts, ranks, restarts + 1);
    wrote = before != ResultMark(options.run_dir);
    const std::string told = wrote ? value_or<std::string>(result_of(options.run_dir), "status", "") : "";
    if (last.status == 0 && told != "finished") {  // an interrupted mpiexec returns 0
      last.status = told == "preempted" ? 85 : 1;
      if (last.status == 1) last.reason = "it ended without a result";
    }
    if (last.asked && last.signal == 0 && last.status != 0 && last.status != 85) last.signal = SIGTERM;
    attempts.push_back(attempt_json(last, saved_step(options.run_dir)));
    if (last.status == 0) {
      status = 0;
      exit = "finished";
    }
    if (last.status == 85) {
      status = 85;
      exit = "preempted";
    }
    if (!may_pass(last.status)) {
      status = last.status;
      exit = last.reason;
    }
    if (last.signal != 0) {
      status = 128 + last.signal;
      exit = last.reason;
    }
    if (!exit.empty()) break;
    say(fmt::format("failed after {:.1f} s, checkpoint of step {}: {}", last.seconds, saved_step(options.run_dir),
                    last.reason));
    if (restarts == options.max_restarts) {
      if (kind_of_status(last.status)) status = last.status;
      exit = fmt::format("gave up after {} restarts: {}", restarts, last.reason);
      break;
    }
    const double wait = std::min(60.0, static_cast<double>(1 << std::min(restarts, 6)));
    say(fmt::format("restarting in {} s; {} restarts are left", wait, options.max_restarts - restarts - 1));
    if (const int signal = pause(wait)) {
      status = 128 + signal;
      exit = "asked to stop between two attempts";
      break;
    }
  }
  Json result = wrote ? result_of(options.run_dir) : Json::object();  // not the result of an earlier training
  result["exit"] = exit;
  result["restarts"] = std::ssize(attempts) - 1;
  result["attempts"] = std::move(attempts);
  if (status != 0 && status != 85) result["status"] = "failed";
  if (fs::is_directory(options.run_dir)) replace_file(options.run_dir + "/" + result_file, json_text(result) + "\n");
  if (status != 0) say(exit);
  return status;
}

}  // namespace trireme
