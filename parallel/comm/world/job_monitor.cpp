#include "parallel/comm/world/job_monitor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "framework/io/file.h"
#include "framework/io/json.h"
#include "kernels/core/thread.h"
#include "parallel/comm/call.h"
#include "parallel/comm/crash_report.h"
#include "parallel/comm/flight_recorder.h"
#include "parallel/comm/world/compare.h"
#include "parallel/comm/world/job_sockets.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
constexpr double grace = 3;  // seconds from the end of a connection to the verdict

/// The first line; empty if the file does not exist.
std::string line_of(const std::string& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}
std::string link_of(const char* path) {
  std::error_code none;
  return std::filesystem::read_symlink(path, none).string();
}

/// Identity of a process for other processes.
struct Process {
  std::string host, pids, network;  ///< host name; PID namespace and network namespace
  int pid = 0, rank = 0;            ///< rank: its first one
  bool operator==(const Process& o) const { return pids == o.pids && pid == o.pid; }
};
Process own_process(int rank) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::string boot = line_of("/proc/sys/kernel/random/boot_id");
  if (boot.empty()) boot = host.data();
  return {host.data(), boot + link_of("/proc/self/ns/pid"), boot + link_of("/proc/self/ns/net"), ::getpid(), rank};
}

/// Of a rank of this process: its state when it was last seen to move, and for how long the process has run since.
struct Standstill {
  std::uint64_t beats = 0;
  std::int64_t ended = 0, step = -1;  ///< ended: of the newest entry
  const char* phase = nullptr;
  Seconds stood{0};
};

/// The state of another process on this one.
struct WatchedProcess {
  Process process;
  std::optional<LineSocket> socket = {};
  Json ranks = Json::array();  ///< own_ranks() of the last report
  Seconds silent{0};           ///< time since the last report
  bool said_goodbye = false;
};

std::string who_waits(const std::vector<const Json*>& all) {
  std::string text;
  for (const Json* ranks : all)
    for (const Json& r : *ranks)
      if (r.value("waits", 0.0) > 0)
        text += fmt::format("{}{} ({} after step {})", text.empty() ? "; waiting for others: rank " : ", ",
                            r.value("rank", 0), r.value("last", ""), r.value("step", 0));
  return text;
}

/// The process's last report, which may be some steps older than the state in which it stopped.
std::string state_of(const Json& ranks) {
  std::string text;
  for (const Json& r : ranks)
    text += fmt::format("{}phase {} after step {}, action {}: {}", text.empty() ? "its last report: " : "; ",
                        r.value("phase", ""), r.value("step", 0), r.value("count", 0), r.value("last", ""));
  return text.empty() ? "it never reported what it does" : text;
}

/// State of a process of this host in /proc: 'T' stopped, 'Z' ended; 0: gone.
char state_of_process(int pid) {
  const std::string text = line_of(fmt::format("/proc/{}/stat", pid));
  const std::size_t end = text.rfind(')');
  return text.empty() ? 0 : end == text.npos || end + 2 >= text.size() ? '?' : text[end + 2];
}

/// Replaces a file that only its owner may read, without sync. Errors are ignored: the next write may succeed.
void replace_private(const std::string& path, const std::string& text) {
  const std::string temporary = temporary_name(path);
  const Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return;
  const bool whole = ::write(file.get(), text.data(), text.size()) == std::ssize(text);
  if (!whole || ::rename(temporary.c_str(), path.c_str()) != 0) ::unlink(temporary.c_str());
}

}  // namespace

struct JobMonitor::Impl {
  explicit Impl(Communicator& comm) : own(own_process(comm.rank())), main(comm.rank() == 0), size(comm.size()) {
    const auto texts = gather_texts(comm, json_text({own.host, own.pids, own.network, own.pid}, NotUtf8::replaced));
    std::set<std::pair<std::string, int>> met{{own.pids, own.pid}};
    bool loopback = true;
    for (int r = 0; r < comm.size(); ++r) {
      const Json t = parse_json(texts[static_cast<std::size_t>(r)]);
      const Process p{t.at(0), t.at(1), t.at(2), t.at(3), r};
      loopback = loopback && p.network == own.network;
      if (p == own && r < comm.rank()) watches = false;  // another rank of this process monitors
      if (met.emplace(p.pids, p.pid).second) peers.push_back({p});
    }
    const bool alone = peers.empty();
    Json door;
    if (main && !alone) {
      ensure_open_files(std::ssize(peers) + 8);  // one connection per process
      listener = listen_anywhere(loopback);
      const auto addresses = loopback ? std::vector<std::string>{"127.0.0.1"} : own_addresses();
      door = {{"token", random_token()}, {"answer", random_token()}, {"port", listener->port}, {"at", addresses}};
    }
    door = parse_json(broadcast_text(comm, json_text(door), 0));
    if (!alone) {
      token = door.at("token");
      answer = door.at("answer");
      port = door.at("port");
      at = door.at("at");
    }
    if (!main) std::erase_if(peers, [](const WatchedProcess& p) { return p.process.rank != 0; });
    if (watches)
      thread = start_thread<std::jthread>(
          "monitor", [this, limit = unscaled_timeout().count()](const std::stop_token& end) { watch(end, limit); });
  }
  ~Impl() {
    if (!watches) return;
    thread.request_stop();
    const std::uint64_t one = 1;
    (void)!::write(wake.get(), &one, sizeof one);
    thread.join();
    if (!writer.joinable()) return;
    {
      const std::lock_guard lock(mutex);
      writer.request_stop();
    }
    state_changed.notify_all();
    writer.join();
    std::filesystem::remove(live, ignored);
  }

  /// From now on a separate thread writes the file, so that a slow file system does not delay heartbeats.
  void write_to(const std::string& path) {
    if (!watches) return;
    live = path;
    writer = start_thread<std::jthread>("live.json", [this](const std::stop_token& end) {
      for (std::unique_lock lock(mutex); !end.stop_requested();) {
        state_changed.wait(lock, [&] { return end.stop_requested() || !state.empty(); });
        const std::string text = std::exchange(state, "");
        lock.unlock();
        if (!text.empty()) replace_private(live, text);
        lock.lock();
      }
    });
    writes = true;
  }

  void watch(const std::stop_token& end, double limit) {
    const Seconds beat(std::min(0.5, limit / 10));
    Seconds since_beat = beat, since_file{1};
    if (!main && !peers.empty()) join(end);
    for (auto last = Clock::now(); !end.stop_requested();) {
      rest();
      const auto now = Clock::now();
      const Seconds ran = std::min<Seconds>(now - last, Seconds(0.2));
      last = now;
      if (main) admit();
      for (WatchedProcess& p : peers) {
        if (!p.socket || p.said_goodbye) continue;
        p.silent += ran;
        for (const std::string& line : p.socket->receive()) hear(p, line);
      }
      if ((since_beat += ran) >= beat) {
        since_beat = {};
        if (main) {
          say({{"job", job_in_words()}, {"ranks", own_ranks()}});
        } else {
          say({{"ranks", own_ranks()}});
        }
      }
      if ((since_file += ran) >= Seconds(1)) {
        since_file = {};
        if (writes) tell_writer(limit);
      }
      judge_own(ran, limit);
      for (const WatchedProcess& p : peers) judge(p, limit);
      if (main && size > 1 && since_beat.count() == 0) judge_all(limit);
    }
    say({{"goodbye", true}});
  }

  /// Sleeps until a message arrives, at most 0.1 s.
  void rest() {
    std::vector<pollfd> all;
    for (const WatchedProcess& p : peers)
      if (p.socket && p.socket->open()) all.push_back({p.socket->descriptor(), POLLIN, 0});
    for (const auto& [socket, since] : strangers) all.push_back({socket.descriptor(), POLLIN, 0});
    if (listener) all.push_back({listener->socket.get(), POLLIN, 0});
    all.push_back({wake.get(), POLLIN, 0});
    ::poll(all.data(), all.size(), 100);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // limits the rate of reports
  }

  /// Tries for 5 s. If rank 0 has failed meanwhile, its message should be the job's last line, so the failure is not
  /// reported.
  void join(const std::stop_token& end) {
    WatchedProcess& hub = peers.front();
    const auto give_up = Clock::now() + Seconds(5);
    for (hub.socket = connect_to(at, port); !hub.socket->open() && Clock::now() < give_up; rest()) {
      if (end.stop_requested()) return hub.socket.reset();
      hub.socket = connect_to(at, port);
    }
    if (!hub.socket->open()) {
      std::fprintf(stderr,
                   "trireme: rank %d: no way past MPI to rank 0 on %s (port %d): a rank that stops is found late\n",
                   own.rank, hub.process.host.c_str(), port);
      hub.socket.reset();
      return;
    }
    hub.socket->send(token);
    hub.socket->send(std::to_string(own.rank));
  }

  /// Connections that send the token become peers. They have 5 s for it.
  void admit() {
    while (listener) {
      LineSocket socket = accept_from(*listener);
      if (!socket.open()) break;
      if (strangers.size() < 2 * peers.size() + 8) strangers.emplace_back(std::move(socket), Clock::now());
    }
    std::erase_if(strangers, [&](auto& stranger) {
      auto& [socket, since] = stranger;
      std::vector<std::string>& lines = first_lines[socket.descriptor()];
      const int descriptor = socket.descriptor();
      for (std::string& line : socket.receive()) lines.push_back(std::move(line));
      const bool knows = !lines.empty() && equal_tokens(lines[0], token);
      const bool over = !socket.open() || Clock::now() - since > std::chrono::seconds(5) || (!lines.empty() && !knows);
      if (knows && lines.size() >= 2) {
        for (WatchedProcess& p : peers)
          if (std::to_string(p.process.rank) == lines[1] && !p.socket) {
            p.socket = std::move(socket);
            p.socket->send(answer);
            for (std::size_t i = 2; i < lines.size(); ++i) hear(p, lines[i]);
            break;
          }
      }
      const bool done = over || (knows && lines.size() >= 2);
      if (done) first_lines.erase(descriptor);
      return done;
    });
  }

  void hear(WatchedProcess& p, const std::string& line) {
    if (!main && !known) {
      known = equal_tokens(line, answer);
      if (!known) {
        p.socket->close();
        p.said_goodbye = true;
      }  // not rank 0's process
      return;
    }
    const Json message = parse_json(line);
    if (!message.is_object()) return;
    p.silent = {};
    if (message.contains("goodbye")) {
      p.said_goodbye = true;
      p.socket->close();
    }
    if (message.contains("ranks") && message["ranks"].is_array()) p.ranks = message["ranks"];
    if (!main && message.contains("job")) FlightRecorder::set_others(message.value("job", ""));
    if (!main && message.contains("verdict")) {
      end(message.value("verdict", ""), false, message.value("pids", "") == own.pids ? message.value("pid", 0) : 0);
    }
  }

  void say(const Json& message) {
    const std::string line = json_text(message, NotUtf8::replaced);
    for (WatchedProcess& p : peers)
      if (p.socket && p.socket->open() && !p.said_goodbye) p.socket->send(line);
  }

  /// Describes the activity of the first ranks, for the message of a rank whose wait took too long.
  std::string job_in_words() {
    std::string text;
    const Json mine = own_ranks();
    std::vector<const Json*> all{&mine};
    for (const WatchedProcess& p : peers) all.push_back(&p.ranks);
    for (std::size_t i = 0; i < std::min<std::size_t>(all.size(), 8); ++i)
      for (const Json& r : *all[i])
        text += fmt::format("{}rank {}: {} {}, for {:.1f} s, phase {}", text.empty() ? "" : "; ", r.value("rank", 0),
                            r.value("busy", false) ? "in" : "after", r.value("last", ""), r.value("since", 0.0),
                            r.value("phase", ""));
    FlightRecorder::set_others(text);
    return text;
  }

  static std::string named(const Process& p, int rank) {
    return fmt::format("watchdog: rank {} ({}, process {})", rank, p.host, p.pid);
  }

  /// Ends this process if one of its ranks hangs. ran: since the last call.
  void judge_own(Seconds ran, double limit) {
    const FlightRecorder* hangs = nullptr;
    FlightRecorder::each([&](const FlightRecorder& r) {
      Standstill& s = seen[&r];
      const std::int64_t ended = r.entry(r.count()).ended;
      if (s.beats != r.beats() || s.ended != ended || s.step != r.step() || s.phase != r.phase() || r.waits_since() > 0)
        s = {r.beats(), ended, r.step(), r.phase()};
      s.stood += ran;
      if (s.stood.count() >= (std::strcmp(s.phase, "step") == 0 ? 0.9 : 6) * limit) hangs = &r;
    });
    if (!hangs) return;
    const Json mine = own_ranks();
    std::vector<const Json*> all{&mine};
    for (const WatchedProcess& p : peers) all.push_back(&p.ranks);
    crash(hangs->thread(), fmt::format("{} made no progress for {:.0f} s in phase {} after step {}; last: {}{}",
                                       named(own, hangs->rank()), seen[hangs].stood.count(), hangs->phase(),
                                       hangs->step(), hangs->entry(hangs->count()).text.data(), who_waits(all)));
  }

  void judge(const WatchedProcess& p, double limit) {
    if (!p.socket || p.said_goodbye) return;
    const bool gone = !p.socket->open();
    const double allowed = gone ? grace : 0.9 * limit;
    if (p.silent.count() < allowed) return;
    const Json mine = own_ranks();
    std::vector<const Json*> others{&mine};
    for (const WatchedProcess& other : peers)
      if (&other != &p) others.push_back(&other.ranks);
    const std::string text = fmt::format(
        "{} {}; {}{}", named(p.process, p.process.rank),
        gone ? "ended without an error message" : fmt::format("has been silent for {:.0f} s", p.silent.count()),
        state_of(p.ranks), who_waits(others));
    if (main) say({{"verdict", text}, {"pids", p.process.pids}, {"pid", gone ? 0 : p.process.pid}});
    end(text, true, !gone && p.process.pids == own.pids ? p.process.pid : 0);
  }

  /// Aborts the job if all ranks wait for each other in a step. In a first step a rank waits longer, because others may
  /// still be in the phase before.
  void judge_all(double limit) {
    int waiting = 0;
    const auto count = [&](const Json& ranks) {
      for (const Json& r : ranks)
        waiting += r.value("phase", "") == "step" && r.value("waits", 0.0) > limit + 1;  // else a rank reports it
                                                                                         // itself
    };
    count(own_ranks());
    for (const WatchedProcess& p : peers) count(p.ranks);
    if (waiting < size) return;
    const std::string text = fmt::format("watchdog: all ranks wait for each other: {}", job_in_words());
    say({{"verdict", text}, {"pids", ""}, {"pid", 0}});
    end(text, true, 0);
  }

  [[noreturn]] static void end(const std::string& why, bool tell, int and_process) {
    pthread_t thread = ::pthread_self();
    FlightRecorder::each([&](const FlightRecorder& r) { thread = r.thread(); });
    crash(thread, why, tell, and_process);
  }

  void tell_writer(double limit) {
    Json all = Json::array();
    const auto add = [&](const Process& p, const Json& ranks, double silent, bool goodbye) {
      all.push_back({{"rank", p.rank},
                     {"host", p.host},
                     {"pids", p.pids},
                     {"pid", p.pid},
                     {"ranks", ranks},
                     {"silent", silent},
                     {"left", goodbye}});
    };
    add(own, own_ranks(), 0, false);
    for (const WatchedProcess& p : peers) add(p.process, p.ranks, p.silent.count(), p.said_goodbye);
    const double now = Seconds(std::chrono::system_clock::now().time_since_epoch()).count();
    const Json found{{"port", listener ? listener->port : 0}, {"time", now}, {"limit", limit}, {"processes", all}};
    {
      const std::lock_guard lock(mutex);
      state = json_text(found, NotUtf8::replaced);
    }
    state_changed.notify_all();
  }

  /// The activities of the ranks of this process: [{"rank", "phase", "step", "count", "last", "since", "waits"}], times
  /// in seconds.
  Json own_ranks() {
    Json all = Json::array();
    FlightRecorder::each([&](const FlightRecorder& r) {
      const auto& last = r.entry(r.count());
      const std::int64_t since = r.waits_since();
      const double waits = since > 0 ? static_cast<double>(r.now() - since) / 1e6 : 0;
      all.push_back({{"rank", r.rank()},
                     {"phase", r.phase()},
                     {"step", r.step()},
                     {"count", r.count()},
                     {"last", last.text.data()},
                     {"busy", last.ended == 0},
                     {"since", std::max(waits, seen[&r].stood.count())},
                     {"waits", waits}});
    });
    return all;
  }

  const Process own;
  const bool main;
  const int size;                      // ranks of the job
  bool watches = true, known = false;  // known: rank 0's process has answered
  std::vector<WatchedProcess> peers;   // in rank 0's process: all others; elsewhere: rank 0's
  std::optional<Listener> listener;
  std::string token, answer;
  int port = 0;
  std::vector<std::string> at;
  std::vector<std::pair<LineSocket, Clock::time_point>> strangers;  // connections that have not sent the token yet
  std::map<int, std::vector<std::string>> first_lines;              // of these
  std::map<const FlightRecorder*, Standstill> seen;                 // by the thread that watches
  std::atomic<bool> writes = false;                                 // the ranks' activities are written to a file
  std::string live;                                                 // that file
  std::mutex mutex;
  std::condition_variable state_changed;
  std::string state;  // next contents of the file; empty: written
  std::error_code ignored;
  const Descriptor wake{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};  // ends the thread
  std::jthread thread, writer;
};

JobMonitor::JobMonitor(Communicator& comm) : impl_(std::make_unique<Impl>(comm)) {}
JobMonitor::~JobMonitor() = default;
void JobMonitor::write_to(const std::string& path) { impl_->write_to(path); }

namespace {

/// state: contents of live.json.
std::string verdict_on(const Json& state, bool& held) {
  const double age = Seconds(std::chrono::system_clock::now().time_since_epoch()).count() - state.value("time", 0.0);
  const Process here = own_process(0);
  std::string lines;
  std::vector<std::string> stopped, idle, waiting, working;
  for (const Json& p : state["processes"]) {
    const bool is_here = p.value("pids", "") == here.pids;
    const char now = is_here ? state_of_process(p.value("pid", 0)) : '?';
    std::string trouble;
    if (now == 'T' || now == 't') trouble = "is stopped (SIGSTOP, or a debugger)";
    if (now == 0 || now == 'Z') trouble = "is gone";
    if (p.value("silent", 0.0) > 5 && trouble.empty() && !p.value("left", false))
      trouble = fmt::format("has been silent for {:.0f} s", p.value("silent", 0.0));
    const std::string who = fmt::format("({}, process {})", p.value("host", ""), p.value("pid", 0));
    if (!trouble.empty()) stopped.push_back(fmt::format("rank {} {} {}", p.value("rank", 0), who, trouble));
    for (const Json& r : p.value("ranks", Json::array())) {
      const double waits = r.value("waits", 0.0), since = r.value("since", 0.0);
      lines += fmt::format("rank {:<4} {:<28} {:<9} step {:<8} {:<44} {}\n", r.value("rank", 0), who,
                           r.value("phase", ""), r.value("step", 0), r.value("last", ""),
                           waits > 0 ? fmt::format("waits for {:.1f} s", waits) : fmt::format("{:.1f} s ago", since));
      (waits > 5 ? waiting : working).push_back(std::to_string(r.value("rank", 0)));
      if (waits <= 5 && since > 5 && trouble.empty())
        idle.push_back(fmt::format("rank {} {} has called nothing for {:.0f} s in phase {}, last {}",
                                   r.value("rank", 0), who, since, r.value("phase", ""), r.value("last", "")));
    }
  }
  stopped.insert(stopped.end(), idle.begin(), idle.end());  // after processes that may be the cause
  const bool old = age > 10;
  held = old || !stopped.empty();
  if (old) lines += fmt::format("this was {:.0f} s ago: rank 0's process has written nothing since\n", age);
  if (!stopped.empty()) lines += fmt::format("verdict: {}\n", fmt::join(stopped, "; "));
  if (!waiting.empty()) lines += fmt::format("waiting for others: rank {}\n", fmt::join(waiting, ", "));
  if (!held && !waiting.empty() && working.empty()) {
    held = true;
    lines += "verdict: all ranks wait for each other\n";
  }
  if (!held) lines += "verdict: the run moves\n";
  return lines;
}

}  // namespace

std::string live_verdict(const std::string& path, bool& held) {
  const Json state = parse_json(read_text(path, 64 << 20));
  const bool is_list = state.is_object() && state.contains("processes") && state["processes"].is_array();
  check(is_list, ErrorKind::data, "live", "{} is not a run's live.json", path);
  try {
    return verdict_on(state, held);
  } catch (const Json::exception& e) {
    fail(ErrorKind::data, "live", "{} is not a run's live.json: {}", path, e.what());
  }
}

}  // namespace trireme
