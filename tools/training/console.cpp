#include "tools/training/console.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "kernels/core/error.h"

namespace trireme {

Console::Console(bool quiet, const std::string& progress, double seconds)
    : quiet_(quiet),
      silent_(quiet || progress == "off"),
      bar_(progress == "bar" || (progress == "auto" && isatty(STDERR_FILENO))),
      seconds_(seconds),
      last_(Clock::now()) {}

Console::~Console() { finish(); }

void Console::clear_bar() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
  drawn_ = false;
}

void Console::log(const std::string& line) {
  if (silent_) return;
  clear_bar();
  std::fprintf(stderr, "%s\n", line.c_str());
}

void Console::result(const std::string& line) {
  if (quiet_) return;
  clear_bar();
  std::fflush(stderr);
  errno = 0;
  if ((std::printf("%s\n", line.c_str()) >= 0 && std::fflush(stdout) == 0) || failed_ != 0) return;
  failed_ = errno != 0 ? errno : EIO;
  log(fmt::format("standard output cannot be written ({}); the run goes on", std::strerror(failed_)));
}

void Console::check_results() const {
  check(failed_ == 0, "standard output", "results could not be written: {}", [&] { return std::strerror(failed_); });
}

void Console::progress(const std::string& label, std::int64_t done, std::int64_t total, const std::string& tail) {
  if (silent_) return;
  auto now = Clock::now();
  double since = std::chrono::duration<double>(now - last_).count();
  if (since < (bar_ ? 0.1 : seconds_)) return;
  last_ = now;
  if (!bar_) {
    std::fprintf(stderr, "%s: %lld/%lld, %s\n", label.c_str(), static_cast<long long>(done),
                 static_cast<long long>(total), tail.c_str());
    return;
  }
  winsize window{};
  int columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 ? window.ws_col : 80;
  std::string count = fmt::format(" {}/{}, {}", done, total, tail);
  int width = std::min(40, columns - 4 - static_cast<int>(label.size() + count.size()));
  std::string bar;
  if (width >= 8) {
    int full = total > 0 ? static_cast<int>(width * done / total) : width;
    bar = " [" + std::string(full, '=') + (full < width ? ">" : "") + std::string(std::max(0, width - full - 1), ' ') +
          "]";
  }
  std::string line = label + bar + count;
  if (static_cast<int>(line.size()) >= columns) line.resize(columns - 1);
  std::fprintf(stderr, "\r%s\x1b[K", line.c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void Console::finish() { clear_bar(); }

}  // namespace trireme
