#include "tools/report/run_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "framework/io/file.h"
#include "framework/io/json.h"
#include "framework/io/lines.h"
#include "kernels/core/error.h"
#include "tools/training/trainer_options.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t most = 256 << 20;  // bytes of a file that are read
constexpr std::size_t most_warnings = 50;

std::string text_of(const Json& j) { return j.is_string() ? j.get<std::string>() : json_text(j, NotUtf8::replaced); }

/// Reads a file if it exists. An error becomes a warning.
template <class Read>
void read_part(RunData& run, const char* file, Read&& read) {
  const std::string path = run.path + "/" + file;
  std::error_code none;
  if (!fs::exists(path, none)) return;
  try {
    read(path);
  } catch (const std::exception& e) { run.warnings.push_back(fmt::format("{} cannot be read: {}", file, e.what())); }
}

void read_metrics(RunData& run, const std::string& path) {
  int damaged = 0;
  each_line(path, [&](std::string_view line) {
    const Json j = parse_json(line);
    if (!j.is_object() || !j.contains("step") || !j["step"].is_number()) {
      ++damaged;
      return;
    }
    const std::string kind = j.value("kind", "");
    auto& to = kind == "eval" || kind == "test" ? run.test : run.train;
    for (const auto& [key, value] : j.items())
      if (value.is_number() && key != "step" && std::isfinite(value.get<double>()))
        to[key].emplace_back(j["step"].get<double>(), value.get<double>());
  });
  if (damaged > 0) run.warnings.push_back(fmt::format("{} lines of metrics.jsonl cannot be read", damaged));
}

void read_budget(RunData& run, const std::string& path) {
  std::istringstream file(read_text(path, 1 << 20));
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line) && line.size() > 44) {
    std::string what = line.substr(0, 44);
    what.erase(what.find_last_not_of(' ') + 1);
    double milliseconds = 0, percent = 0;
    if (std::sscanf(line.c_str() + 44, "%lf %lf", &milliseconds, &percent) == 2 && what != "all")
      run.budget.emplace_back(what, percent);
  }
}

void read_trace(RunData& run, const std::string& path) {
  const Json trace = parse_json(read_text(path, most));
  check(trace.is_object() && trace.contains("traceEvents"), ErrorKind::data, "report", "it is not a trace");
  std::map<std::pair<int, int>, std::string> lanes;
  std::vector<std::pair<double, double>> steps;  // of rank 0
  for (const Json& e : trace["traceEvents"]) {
    if (e.value("ph", "") == "M" && e.value("name", "") == "thread_name")
      lanes[{e.value("pid", 0), e.value("tid", 0)}] = e["args"].value("name", "");
    if (e.value("ph", "") == "X" && e.value("name", "").starts_with("step ") && e.value("pid", 0) == 0)
      steps.emplace_back(e.value("ts", 0.0), e.value("dur", 0.0));
  }
  if (steps.empty()) return;
  const auto [begin, length] = steps[steps.size() / 2];
  for (const Json& e : trace["traceEvents"]) {
    const double at = e.value("ts", 0.0), end = at + e.value("dur", 0.0);
    if (e.value("ph", "") != "X" || end < begin || at > begin + length) continue;
    run.step.push_back({e.value("pid", 0), lanes[{e.value("pid", 0), e.value("tid", 0)}], e.value("name", ""),
                        std::max(0.0, at - begin) / 1e3, std::min(length, end - begin) / 1e3});
  }
}

void read_log(RunData& run, const std::string& path) {
  each_line(path, [&](std::string_view line) {
    if (run.warnings.size() >= most_warnings) return;
    for (const char* word :
         {"Z warning", "Z rollback", "Z retry", "Z resuming", "not finite", "watchdog:", "Z trireme:", "was removed"})
      if (line.find(word) != line.npos) {
        run.warnings.emplace_back(line);
        break;
      }
  });
}

}  // namespace

RunData read_run(const std::string& path) {
  RunData run;
  run.path = path;
  check(fs::exists(path + "/config.toml"), ErrorKind::file, "report",
        "{} is not a run directory ({}/config.toml is missing); give the --run.dir of a training", path, path);
  run.name = fs::path(fs::absolute(path)).lexically_normal().filename().string();
  if (run.name.empty()) run.name = fs::path(fs::absolute(path)).lexically_normal().parent_path().filename().string();
  read_part(run, "config.toml", [&](const std::string& p) { run.settings = read_own_toml(read_text(p, 1 << 20)); });
  read_part(run, "environment.json", [&](const std::string& p) {
    const Json all = parse_json(read_text(p, 1 << 20));
    check(all.is_object(), ErrorKind::data, "report", "it is no JSON object");
    for (const auto& [key, value] : all.items()) run.environment[key] = text_of(value);
  });
  read_part(run, "result.json", [&](const std::string& p) {
    const Json j = parse_json(read_text(p, 1 << 20));
    run.status = j.value("status", j.value("reason", "?"));
  });
  read_part(run, "metrics.jsonl", [&](const std::string& p) { read_metrics(run, p); });
  read_part(run, "profile.txt", [&](const std::string& p) { read_budget(run, p); });
  read_part(run, "trace.json", [&](const std::string& p) { read_trace(run, p); });
  read_part(run, "logs/rank_0.log", [&](const std::string& p) { read_log(run, p); });
  return run;
}

std::string told(const std::map<std::string, std::string>& all, const std::string& key) {
  const auto at = all.find(key);
  std::string text = at == all.end() ? "–" : at->second;
  if (text.size() > 1 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
  return text;
}
std::string data_of(const RunData& r) {
  return r.environment.contains("data") ? told(r.environment, "data") : told(r.settings, "data.name");
}
bool is_synthetic(const RunData& r) { return told(r.settings, "data.name") == "synthetic"; }

const Points* find(const std::map<std::string, Points>& all, const std::string& key) {
  const auto at = all.find(key);
  return at == all.end() || at->second.empty() ? nullptr : &at->second;
}
double last_of(const RunData& run, const std::string& key) {
  const Points* p = find(run.test, key);
  return p ? p->back().second : NAN;
}

}  // namespace trireme
