#include "parallel/comm/crash_report.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <new>
#include <string_view>
#include <utility>

#include "kernels/core/error.h"
#include "parallel/comm/flight_recorder.h"

namespace trireme {

namespace {

std::array<char, 4096> directory{};
std::array<char, 256> host{};
std::atomic<int> also = 0;        // process to kill together with this one
std::array<char, 1024> reason{};  // reason of a crash() call; empty: the signal is the reason
pthread_t crasher{};              // the thread that called crash()
std::atomic<bool> reported = false;
std::function<void(const std::string&)> leave;
const int crash_status = exit_status(ErrorKind::communicator),  // exit status of crash(), for the signal handler
    exhausted_status = exit_status(ErrorKind::out_of_memory);
constexpr std::string_view no_memory =
    "out of memory: the system gives this process no more (ulimit -v, or its container); try a smaller batch or model";
constexpr std::array fatal{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

/// Writes JSON to a file without allocating memory.
class Writer {
 public:
  explicit Writer(int file) : file_(file) {}
  ~Writer() { flush(); }
  Writer& operator<<(std::string_view text) {
    for (const char c : text) {
      if (used_ == buffer_.size()) flush();
      buffer_[used_++] = c;
    }
    return *this;
  }
  Writer& operator<<(std::int64_t number) {
    std::array<char, 24> digits;
    std::size_t at = digits.size();
    std::uint64_t left = number < 0 ? 0 - static_cast<std::uint64_t>(number) : static_cast<std::uint64_t>(number);
    do digits[--at] = static_cast<char>('0' + left % 10);
    while ((left /= 10) > 0);
    if (number < 0) digits[--at] = '-';
    return *this << std::string_view(&digits[at], digits.size() - at);
  }
  Writer& hex(std::uint64_t number) {
    std::array<char, 16> digits;
    std::size_t at = digits.size();
    do digits[--at] = "0123456789abcdef"[number % 16];
    while ((number /= 16) > 0);
    return *this << "0x" << std::string_view(&digits[at], digits.size() - at);
  }
  /// Writes a quoted string. Characters that JSON does not allow become spaces.
  Writer& quoted(std::string_view text) {
    *this << "\"";
    for (const char c : text)
      *this << std::string_view(c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ' ? " " : &c, 1);
    return *this << "\"";
  }

 private:
  void flush() {
    for (std::size_t done = 0; done < used_;) {
      const ssize_t part = ::write(file_, &buffer_[done], used_ - done);
      if (part <= 0) break;
      done += static_cast<std::size_t>(part);
    }
    used_ = 0;
  }
  int file_;
  std::size_t used_ = 0;
  std::array<char, 1024> buffer_;
};

void write_stack(Writer& out) {
  std::array<void*, 64> frames;
  const int count = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  for (int i = 0; i < count; ++i) {
    Dl_info info{};
    const bool known = ::dladdr(frames[static_cast<std::size_t>(i)], &info) != 0 && info.dli_fname;
    const std::string_view path = known ? info.dli_fname : "?";
    const auto base = reinterpret_cast<std::uint64_t>(known ? info.dli_fbase : nullptr);
    if (i > 0) out << ", ";
    out << "\n  \"" << path.substr(path.rfind('/') + 1) << "+";
    out.hex(reinterpret_cast<std::uint64_t>(frames[static_cast<std::size_t>(i)]) - base);
    if (known && info.dli_sname) out << " (" << info.dli_sname << ")";
    out << "\"";
  }
}

void write_report(const FlightRecorder& r, std::string_view why, bool own_stack, std::string_view kind = "") {
  if (directory[0] == 0) return;
  std::array<char, 4200> path{};
  ::mkdir(directory.data(), 0777);
  // DIRECTORY/rank_N.json
  std::size_t at = std::strlen(directory.data());
  std::memcpy(path.data(), directory.data(), at);
  constexpr std::string_view name = "/rank_", end = ".json";
  std::memcpy(&path[at], name.data(), name.size());
  at += name.size();
  std::array<char, 12> digits;
  std::size_t first = digits.size();
  int left = r.rank();
  do digits[--first] = static_cast<char>('0' + left % 10);
  while ((left /= 10) > 0);
  std::memcpy(&path[at], &digits[first], digits.size() - first);
  at += digits.size() - first;
  std::memcpy(&path[at], end.data(), end.size());
  const int file = ::open(path.data(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (file < 0) return;
  {
    Writer out(file);
    out << "{\"rank\": " << r.rank() << ", \"ranks\": " << r.ranks() << ", \"host\": ";
    out.quoted(host.data()) << ", \"process\": " << ::getpid() << ",\n\"reason\": ";
    out.quoted(why);
    if (!kind.empty()) out << ", \"kind\": \"" << kind << "\"";
    out << ",\n\"phase\": ";
    out.quoted(r.phase()) << ", \"step\": " << r.step() << ", \"resident_bytes\": " << resident_bytes()
                          << ",\n\"stack\": [";
    if (own_stack) write_stack(out);
    const std::int64_t last = r.count();
    out << "],\n\"now\": " << r.now();
    if (r.waits_since() > 0) out << ", \"waits_since\": " << r.waits_since();
    out << ",\n\"entries\": [";
    for (std::int64_t n = std::max<std::int64_t>(1, last - FlightRecorder::kept + 1); n <= last; ++n) {
      const FlightRecorder::Entry& e = r.entry(n);
      out << (n > std::max<std::int64_t>(1, last - FlightRecorder::kept + 1) ? ",\n" : "\n") << "  {\"number\": " << n
          << ", \"what\": ";
      out.quoted(e.text.data()) << ", \"begun\": " << e.begun;
      if (e.ended > 0) out << ", \"ended\": " << e.ended;
      out << "}";
    }
    out << "]}\n";
  }
  ::close(file);
}

std::string_view name_of_signal(int number) {
  return number == SIGSEGV  ? "SIGSEGV"
         : number == SIGBUS ? "SIGBUS"
         : number == SIGFPE ? "SIGFPE"
         : number == SIGILL ? "SIGILL"
                            : "SIGABRT";
}

void tell(std::string_view why) {
  Writer out(2);
  out << "trireme: " << why;
  if (directory[0] != 0) out << "; the last actions of each rank are in " << std::string_view(directory.data());
  out << "\n";
}

/// Whether the system refuses another 16 MiB to this process. Libraries that do not check (oneDNN 2.6, for its code)
/// then read at null.
bool is_exhausted() {
  constexpr std::size_t probe = 16 << 20;
  void* const got = ::mmap(nullptr, probe, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (got == MAP_FAILED) return true;
  ::munmap(got, probe);
  return false;
}

void on_crash(int number) {
  static std::atomic<bool> entered;
  std::signal(number, SIG_DFL);
  if (!entered.exchange(true)) {
    ::alarm(10);  // end even if the report cannot be written
    const bool exhausted = reason[0] == 0 && (number == SIGSEGV || number == SIGBUS) && is_exhausted();
    const std::string_view why = reason[0] != 0 ? std::string_view(reason.data())
                                 : exhausted    ? no_memory
                                                : name_of_signal(number);
    const std::string_view kind = reason[0] != 0 ? "communicator" : exhausted ? "out_of_memory" : "";
    const FlightRecorder* const own = FlightRecorder::current();
    for (const auto& each : FlightRecorder::all())
      if (const FlightRecorder* r = each.load()) write_report(*r, why, r == own || !own, kind);
    if (reason[0] == 0) tell(why);
    if (also > 1) ::kill(also, SIGKILL);
    if (reason[0] != 0) {  // crash() ends the process
      reported = true;
      while (!::pthread_equal(crasher, ::pthread_self())) ::pause();
      return;
    }
    if (exhausted) ::_exit(exhausted_status);
  }
  ::raise(number);
}

std::terminate_handler before = nullptr;

/// A failed allocation that nothing catches, for example in an OpenMP thread, is an out-of-memory error and no crash.
void on_terminate() {
  try {
    if (std::current_exception()) throw;
  } catch (const std::bad_alloc&) {
    for (const auto& each : FlightRecorder::all())
      if (const FlightRecorder* r = each.load()) write_report(*r, no_memory, false, "out_of_memory");
    tell(no_memory);
    ::_exit(exhausted_status);
  } catch (...) {}
  before ? before() : std::abort();
}

}  // namespace

std::int64_t resident_bytes() {
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  std::array<char, 128> text{};
  const ssize_t size = file < 0 ? 0 : ::read(file, text.data(), text.size() - 1);
  if (file >= 0) ::close(file);
  const char* second = size > 0 ? std::strchr(text.data(), ' ') : nullptr;
  return second ? std::strtoll(second, nullptr, 10) * ::sysconf(_SC_PAGESIZE) : 0;
}

void set_crash_directory(const std::string& path) {
  ::gethostname(host.data(), host.size() - 1);
  const std::size_t size = std::min(path.size(), std::size_t{4000});
  std::memcpy(directory.data(), path.data(), size);
  directory[size] = 0;
}

void report_crashes() {
  std::array<void*, 1> frame;
  ::backtrace(frame.data(), 1);  // loads its library now, not in the handler
  static std::array<char, 65536> stack;
  const stack_t own{.ss_sp = stack.data(), .ss_flags = 0, .ss_size = stack.size()};
  ::sigaltstack(&own, nullptr);  // for this thread, whose stack may have overflowed
  struct sigaction action {};
  action.sa_handler = on_crash;
  action.sa_flags = SA_ONSTACK | SA_NODEFER;
  for (const int number : fatal) ::sigaction(number, &action, nullptr);
  if (std::get_terminate() != on_terminate) before = std::set_terminate(on_terminate);
}

void crash(pthread_t thread, const std::string& why, bool tells, int and_process) {
  also = and_process;
  if (tells) tell(why);
  const std::size_t size = std::min(why.size(), reason.size() - 1);
  std::memcpy(reason.data(), why.data(), size);
  crasher = ::pthread_self();
  ::pthread_kill(thread, SIGABRT);
  for (int i = 0; i < 1000 && !reported; ++i) ::usleep(10'000);  // the handler has 10 s to write
  ::alarm(10);                                                   // end even if the others cannot be told
  if (leave && and_process <= 1) leave(why);
  ::_exit(crash_status);
}

void leave_at_crash(std::function<void(const std::string& reason)> call) { leave = std::move(call); }

void write_crash_report(const char* reason, std::string_view kind) {
  if (const FlightRecorder* r = FlightRecorder::current()) write_report(*r, reason, false, kind);
}

}  // namespace trireme
