// Console: prints the progress of a run to stderr (a live bar on a terminal, else a plain line every few seconds) and
// results to stdout. Only rank 0 prints.
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
  /// quiet: print nothing. progress: "bar", "lines", "auto" (a bar if stderr is a terminal) or "off" (results only).
  /// seconds: interval of plain lines. json: lines on stderr are JSON objects {"time": Unix seconds, "message": text};
  /// progress also has "done" and "total".
  Console(bool quiet, const std::string& progress, double seconds, bool json = false);
  ~Console();
  Console(const Console&) = delete;

  /// From now on also appends all lines except results to this file, with the time of day and without bars; also for a
  /// quiet rank. Creates the folder. Write errors are ignored.
  void copy_to(const std::string& path);
  void copy(const std::string& line);      ///< writes a line to that file only
  bool draws_bar() const { return bar_; }  ///< whether progress is a bar
  void log(const std::string& line);       ///< prints a line to stderr
  /// Prints a line to stdout. If stdout cannot be written (full disk, closed pipe), the run continues and stderr
  /// reports it once.
  void result(const std::string& line);
  /// Throws Error if a result could not be written.
  void check_results() const;
  /// Shows progress: `done` of `total` steps; tail follows the bar.
  void progress(const std::string& label, std::int64_t done, std::int64_t total, const std::string& tail);
  /// Ends the progress display of the current label.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  void clear_bar();
  void say(const std::string& line, const nlohmann::json& more);
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  bool quiet_, silent_, json_, bar_, drawn_ = false;  // silent: nothing on stderr
  std::unique_ptr<std::FILE, Close> copy_;
  int failed_ = 0;  // errno of the first result that was not written
  double seconds_;
  Clock::time_point last_, copied_;  // times of the last progress lines, on stderr and in the copy
};

}  // namespace trireme
