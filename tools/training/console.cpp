#include "tools/training/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "framework/io/json.h"
#include "kernels/core/environment.h"
#include "kernels/core/error.h"

namespace trireme {

/// Whether stderr is a terminal that can draw over a line.
static bool draws_over_lines() { return isatty(STDERR_FILENO) && environment_text("TERM").value_or("") != "dumb"; }

Console::Console(bool quiet, const std::string& progress, double seconds, bool json)
    : quiet_(quiet),
      silent_(quiet || progress == "off"),
      json_(json),
      bar_(!json && (progress == "bar" || (progress == "auto" && draws_over_lines()))),
      seconds_(seconds),
      last_(Clock::now()),
      copied_(last_) {}

Console::~Console() { finish(); }

void Console::clear_bar() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
  drawn_ = false;
}

void Console::copy_to(const std::string& path) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
  if (file >= 0) copy_.reset(::fdopen(file, "a"));
}

void Console::copy(const std::string& line) {
  if (!copy_) return;
  const std::time_t now = std::time(nullptr);
  std::tm date{};
  ::gmtime_r(&now, &date);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &date);
  std::fprintf(copy_.get(), "%s %s\n", text.data(), line.c_str());
  std::fflush(copy_.get());
}

void Console::say(const std::string& line, const Json& more) {
  std::string text = line;
  if (json_) {
    Json object{{"time", std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count()},
                {"message", line}};
    object.update(more);
    text = json_text(object);
  }
  std::fprintf(stderr, "%s\n", text.c_str());
}

void Console::log(const std::string& line) {
  copy(line);
  if (silent_) return;
  clear_bar();
  say(line, Json::object());
}

void Console::result(const std::string& line) {
  if (quiet_) return;
  clear_bar();
  std::fflush(stderr);
  errno = 0;
  if ((std::printf("%s\n", line.c_str()) >= 0 && std::fflush(stdout) == 0) || failed_ != 0) return;
  failed_ = errno != 0 ? errno : EIO;
  log(fmt::format("standard output cannot be written ({}); the run continues", std::strerror(failed_)));
}

void Console::check_results() const {
  check(failed_ == 0, ErrorKind::file, "standard output", "results could not be written: {}",
        [&] { return std::strerror(failed_); });
}

void Console::progress(const std::string& label, std::int64_t done, std::int64_t total, const std::string& tail) {
  auto now = Clock::now();
  if (copy_ && std::chrono::duration<double>(now - copied_).count() >= seconds_) {
    copied_ = now;
    copy(fmt::format("{}: {}/{}, {}", label, done, total, tail));
  }
  if (silent_) return;
  double since = std::chrono::duration<double>(now - last_).count();
  if (since < (bar_ ? 0.1 : seconds_)) return;
  last_ = now;
  if (!bar_) return say(fmt::format("{}: {}/{}, {}", label, done, total, tail), {{"done", done}, {"total", total}});
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
