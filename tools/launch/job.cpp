#include "tools/launch/job.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>

#include "kernels/core/error.h"
#include "kernels/core/text.h"
#include "parallel/comm/call.h"
#include "parallel/comm/transport/launcher.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

sigset_t taken_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGTERM, SIGINT, SIGUSR1, SIGCHLD}) sigaddset(&set, number);
  return set;
}

/// Process id to parent's id, for all processes of this host.
std::map<pid_t, pid_t> parents() {
  std::map<pid_t, pid_t> found;
  std::error_code none;
  for (fs::directory_iterator it("/proc", none), end; !none && it != end; it.increment(none)) {
    const std::string name = it->path().filename().string();
    if (!std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; })) continue;
    std::ifstream in(it->path() / "stat");
    std::string text;
    std::getline(in, text);
    const auto behind = text.rfind(") ");  // end of the program's name, which may contain any character
    char state = 0;
    int parent = 0;
    if (behind != text.npos && std::sscanf(text.c_str() + behind + 2, "%c %d", &state, &parent) == 2 && state != 'Z')
      found.emplace(std::stoi(name), parent);
  }
  return found;
}

std::vector<pid_t> all_below(pid_t root) {
  const auto all = parents();
  std::vector<pid_t> below{root};
  for (std::size_t i = 0; i < below.size(); ++i)
    for (const auto& [process, parent] : all)
      if (parent == below[i]) below.push_back(process);
  below.erase(below.begin());
  return below;
}

/// Descendants of this process that run this program.
std::set<pid_t> ranks_below() {
  std::error_code none;
  const fs::path self = fs::read_symlink("/proc/self/exe", none);
  std::set<pid_t> found;
  for (const pid_t process : all_below(::getpid()))
    if (fs::read_symlink(fmt::format("/proc/{}/exe", process), none) == self) found.insert(process);
  return found;
}

/// A file of a process in /proc; empty if it cannot be read.
std::string proc_file(pid_t process, const char* name) {
  std::ifstream in(fmt::format("/proc/{}/{}", process, name), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// State as in /proc/PID/stat. 'T': stopped.
char state_of(pid_t process) {
  const std::string text = proc_file(process, "stat");
  const std::size_t name = text.rfind(") ");
  return name == text.npos || name + 2 >= text.size() ? '?' : text[name + 2];
}

/// "rank 3" from the launcher's environment variable; "a rank" without one.
std::string rank_of(pid_t process) {
  for (const std::string& variable : split_text(proc_file(process, "environ"), '\0'))
    for (const std::string name : {"PMI_RANK=", "PMIX_RANK=", "OMPI_COMM_WORLD_RANK=", "SLURM_PROCID="})
      if (variable.starts_with(name)) return "rank " + variable.substr(name.size());
  return "a rank";
}

/// Whether a rank's process has joined MPI: MPI then starts a thread with a known name.
bool has_joined(pid_t process) {
  std::error_code none;
  for (fs::directory_iterator it(fmt::format("/proc/{}/task", process), none), end; !none && it != end;
       it.increment(none)) {
    std::string name;
    std::getline(std::ifstream(it->path() / "comm"), name);
    if (name == joined_thread) return true;
  }
  return false;
}

void reap() {
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {}
}

/// In the child of a fork: executes the command. errors: stderr; -1: inherited. quiet: discards stdout. failed: pipe
/// that receives errno on failure.
[[noreturn]] void become(const std::vector<std::string>& command, pid_t parent, int errors, int failed, bool quiet) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
  ::setpgid(0, 0);
  const sigset_t set = taken_signals();
  ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
  const int nothing = ::open("/dev/null", O_RDWR);
  ::dup2(nothing, 0);
  if (quiet) ::dup2(nothing, 1);
  ::dup2(errors < 0 ? nothing : errors, 2);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  const int why = errno;
  ::_exit(failed < 0 || ::write(failed, &why, sizeof why) < 0 ? 127 : 126);
}

int exit_status(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

}  // namespace

void adopt_orphans() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const sigset_t set = taken_signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
}

int next_signal(double seconds) {
  const sigset_t set = taken_signals();
  const timespec most{
      .tv_sec = static_cast<time_t>(seconds),
      .tv_nsec = static_cast<long>((seconds - static_cast<double>(static_cast<time_t>(seconds))) * 1e9)};
  const int got = ::sigtimedwait(&set, nullptr, &most);
  return got > 0 && got != SIGCHLD ? got : 0;
}

int kill_all_below() {
  std::set<pid_t> killed;
  for (;;) {
    reap();
    const std::vector<pid_t> left = all_below(::getpid());
    if (left.empty()) return static_cast<int>(killed.size());
    for (const pid_t process : left) {
      ::kill(process, SIGKILL);
      killed.insert(process);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

int run_quietly(const std::vector<std::string>& command) {
  const pid_t parent = ::getpid(), child = ::fork();
  if (child == 0) become(command, parent, -1, -1, true);
  int status = 0;
  return child > 0 && ::waitpid(child, &status, 0) == child ? exit_status(status) : 127;
}

Job::Job(std::vector<std::string> command, bool quiet) : quiet_(quiet) {
  int ends[2], told[2];
  check(::pipe2(ends, O_CLOEXEC) == 0 && ::pipe2(told, O_CLOEXEC) == 0, ErrorKind::file, "launch", "no pipe: {}",
        [&] { return std::strerror(errno); });
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  errors_ = ends[0];
  const pid_t parent = ::getpid();
  child_ = ::fork();
  if (child_ == 0) become(command, parent, ends[1], told[1], quiet);
  int why = child_ > 0 ? 0 : errno;
  ::close(ends[1]);
  ::close(told[1]);
  // Until exec the child looks like a rank. exec closes the pipe; a failed exec writes errno to it.
  if (child_ > 0 && ::read(told[0], &why, sizeof why) == 0) why = 0;
  ::close(told[0]);
  if (why != 0) ::close(errors_);
  check(why == 0, ErrorKind::file, "launch", "{} could not be started: {}", command[0],
        [&] { return std::strerror(why); });
}

Job::~Job() {
  kill_all_below();
  for (const std::string& file : shared_) ::unlink(file.c_str());  // as MPI does once all ranks have joined
  pass_on();
  ::close(errors_);
}

bool Job::poll() {
  pass_on();
  if (int status = 0; status_ < 0 && ::waitpid(child_, &status, WNOHANG) == child_) status_ = exit_status(status);
  if (status_ < 0) return false;
  pass_on();
  return true;
}

void Job::signal(int number) {
  if (status_ < 0) ::kill(child_, number);
}

double Job::incomplete() {
  const std::set<pid_t> now = ranks_below();
  const bool fewer = !now.empty() && !std::ranges::includes(now, ranks_);
  ranks_.insert(now.begin(), now.end());
  if (!fewer) missing_since_.reset();
  if (fewer && !missing_since_) missing_since_ = Clock::now();
  return fewer ? std::chrono::duration<double>(Clock::now() - *missing_since_).count() : 0;
}

std::string Job::hung_start(int ranks) {
  const auto now = Clock::now();
  starting_ += std::min(1.0, std::chrono::duration<double>(now - looked_).count());  // a longer interval means that the
                                                                                     // job was suspended
  looked_ = now;
  if (joined_ || ranks <= 1) return "";
  const std::set<pid_t> here = ranks_below();
  joined_ = std::ranges::any_of(here, has_joined);  // ranks join together
  for (const pid_t process : here)
    for (const std::string& line : split_text(proc_file(process, "maps"), '\n'))
      if (const std::size_t at = line.find("/dev/shm/mpich_shar_tmp"); at != line.npos && !line.ends_with(" (deleted)"))
        shared_.insert(line.substr(at));
  const double limit = 6 * collective_timeout().count();  // as JobMonitor allows outside of steps
  if (joined_ || here.empty() || starting_ < limit) return "";
  std::vector<std::string> stopped, all;
  for (const pid_t process : here) {
    const char state = state_of(process);
    const bool stands = state == 'T' || state == 't';
    all.push_back(fmt::format("{} (process {}{})", rank_of(process), process, stands ? ", stopped" : ""));
    if (stands) stopped.push_back(all.back());
  }
  return fmt::format("the ranks did not join MPI within {:g} s (six times TRIREME_TIMEOUT); look at {}", limit,
                     fmt::join(stopped.empty() ? all : stopped, ", "));
}

void Job::pass_on() {
  char text[4096];
  for (ssize_t size; (size = ::read(errors_, text, sizeof text)) > 0;) {
    for (ssize_t done = quiet_ ? size : 0, part; done < size; done += part)
      if ((part = ::write(2, text + done, static_cast<std::size_t>(size - done))) <= 0) break;
    line_.append(text, static_cast<std::size_t>(size));
    for (std::size_t end; (end = line_.find('\n')) != line_.npos; line_.erase(0, end + 1))
      if (line_.starts_with("trireme: ")) last_words_ = line_.substr(9, end - 9);
    if (line_.size() > 65536) line_.clear();
  }
}

}  // namespace trireme
