// RunData: what a run directory tells of a run, whole or not.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

using Points = std::vector<std::pair<double, double>>;

struct RunData {
  std::string path, name;                          ///< name: short, unique among those of a report
  std::map<std::string, std::string> settings;     ///< of config.toml, by their dotted names
  std::map<std::string, std::string> environment;  ///< of environment.json
  std::string status = "running, or ended without a word";
  std::map<std::string, Points> train, test;           ///< by the key in metrics.jsonl: (step, value)
  std::vector<std::pair<std::string, double>> budget;  ///< of profile.txt: where the time went, percent
  /// Of trace.json: of the step in its middle, by rank, what took time there.
  struct Span {
    int rank = 0;
    std::string lane, name;
    double begin = 0, end = 0;  ///< milliseconds since the step began
  };
  std::vector<Span> step;
  std::vector<std::string> warnings;  ///< of the log, and what could not be read
};

/// Throws Error for what is no run directory.
RunData read_run(const std::string& path);

}  // namespace trireme
