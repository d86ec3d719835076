// What several programs of bench/ need: clocks, the median, peak memory and the CPU's name.
#pragma once
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <vector>

using Clock = std::chrono::steady_clock;

/// Wall-clock seconds since start.
inline double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }
/// Wall-clock milliseconds since start.
inline double milliseconds(Clock::time_point start) { return 1e3 * since(start); }
/// The upper of the two middle values where their number is even. v is not empty.
inline double median(std::vector<double> v) {
  std::ranges::sort(v);
  return v[v.size() / 2];
}
/// The most memory that this process has held, in MiB.
inline double peak_megabytes() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return static_cast<double>(use.ru_maxrss) / 1024;
}
inline std::string cpu_name() {
  std::ifstream about("/proc/cpuinfo");
  for (std::string line; std::getline(about, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown CPU";
}
