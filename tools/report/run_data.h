// RunData: the contents of a run directory, complete or not.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

using Points = std::vector<std::pair<double, double>>;

struct RunData {
  std::string path, name;                          ///< name: short, and unique within a report
  std::map<std::string, std::string> settings;     ///< of config.toml, by dotted name
  std::map<std::string, std::string> environment;  ///< of environment.json
  std::string status = "running, or ended without a result";
  std::map<std::string, Points> train, test;           ///< by key of metrics.jsonl: (step, value)
  std::vector<std::pair<std::string, double>> budget;  ///< of profile.txt: time by category in percent
  /// Of trace.json: an action of the middle traced step, by rank.
  struct Span {
    int rank = 0;
    std::string lane, name;
    double begin = 0, end = 0;  ///< milliseconds since the start of the step
  };
  std::vector<Span> step;
  std::vector<std::string> warnings;  ///< warnings of the log, and files that could not be read
};

/// Throws Error if path is not a run directory.
RunData read_run(const std::string& path);

}  // namespace trireme
