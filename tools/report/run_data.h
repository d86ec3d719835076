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
/// A value of the settings or the environment without quotes; "–" if it is missing.
std::string told(const std::map<std::string, std::string>& all, const std::string& key);
/// The run's data; for old run directories without a record of the data, the setting data.name.
std::string data_of(const RunData&);
bool is_synthetic(const RunData&);
/// Null if the key is missing.
const Points* find(const std::map<std::string, Points>& all, const std::string& key);
double last_of(const RunData&, const std::string& key);  ///< value of the last evaluation; NaN if there is none

}  // namespace trireme
