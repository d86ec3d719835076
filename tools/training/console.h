// Console: progress of a run on stderr, a live bar on a terminal and a plain line every few seconds elsewhere; results
// on stdout. Only rank 0 prints.
#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trireme {

class Console {
 public:
  /// quiet: a rank that prints nothing. progress: "bar", "lines", "auto", which looks whether stderr is a terminal, or
  /// "off": results only. seconds: between plain lines.
  /// json: lines on stderr are JSON objects, {"time": Unix seconds, "message": text}, of progress with "done" and
  /// "total".
  Console(bool quiet, const std::string& progress, double seconds, bool json = false);
  ~Console();
  Console(const Console&) = delete;

  /// From now on all but results goes to this file, too, a line with the time of day each, and no bars; of a quiet rank
  /// as well. Appends; makes its folder. A file that cannot be written is let be.
  void copy_to(const std::string& path);
  void copy(const std::string& line);  ///< to that file alone
  bool draws_bar() const { return bar_; }
  void log(const std::string& line);  ///< a line of its own, to stderr
  /// To stdout. Where that cannot be written (a full disk, a reader that has gone) the run goes on: stderr tells once.
  void result(const std::string& line);
  /// Throws Error when a result could not be written.
  void check_results() const;
  /// Progress of something with `total` steps; tail is shown behind the bar.
  void progress(const std::string& label, std::int64_t done, std::int64_t total, const std::string& tail);
  /// Ends the bar or plain lines of the current label.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  void clear_bar();
  void say(const std::string& line, const nlohmann::json& more);
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  bool quiet_, silent_, json_, bar_, drawn_ = false;  // silent: on stderr
  std::unique_ptr<std::FILE, Close> copy_;
  int failed_ = 0;  // errno of the first result that was not written
  double seconds_;
  Clock::time_point last_, copied_;  // lines of progress
};

}  // namespace trireme
