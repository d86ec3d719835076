// The directory of one run: config.toml, metrics.jsonl, checkpoints/. Only rank 0 touches it.
#pragma once
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace trireme {

/// Names of the classes in a run directory, one per line, where the data set has names.
inline constexpr const char* class_file = "classes.txt";

class RunDir {
 public:
  /// Creates path (or, if empty, the first free of runs/NAME, runs/NAME-2, ...) and writes config.toml. With resume the
  /// directory must exist. Throws Error with path and reason when it cannot be written.
  RunDir(const std::string& path, const std::string& name, const std::string& config, bool resume);
  const std::string& path() const { return path_; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string metrics() const { return path_ + "/metrics.jsonl"; }
  /// Appends one line to metrics.jsonl. Throws Error when it cannot be written.
  void record(const nlohmann::json& line);
  /// Writes class_file; nothing for no names.
  void write_classes(const std::vector<std::string>& names);
  /// Drops the lines of steps after `step` (they will be written again), and a last line cut short.
  void rewind(std::int64_t step);

 private:
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  void open();
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace trireme
