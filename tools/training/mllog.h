// MLPerf's log lines (mlperf_logging, mllog): ":::MLLOG {...}", of which its compliance checker and its plots are made.
#pragma once
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace trireme {

class MlLog {
 public:
  /// Appends to the file. Throws Error where it cannot be opened.
  explicit MlLog(const std::string& path);
  /// kind: "POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END". metadata: beside file and lineno.
  void write(std::string_view kind, std::string_view key, const nlohmann::json& value, nlohmann::json metadata);

 private:
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace trireme
