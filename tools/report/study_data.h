// StudyData: what a study's page shows, read from its directory: results by cell with medians and intervals, speed-ups
// where they may be shown, families of cells that differ in their ranks alone.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tools/report/run_data.h"
#include "tools/scaling/study_facts.h"
#include "tools/scaling/study_result.h"

namespace trireme {

/// A median of runs and its interval (median_interval); runs that never came there count as infinity.
struct Median {
  double value = unknown;
  MedianInterval interval = {unknown, unknown, 0};
};
Median median_with_interval(const std::vector<double>&);  ///< of those that are known
/// base / x: of medians; its interval from the extremes of both intervals, which is wider than one of 95 %. Unknown
/// where one of them is not finite.
Median ratio(const Median& base, const Median& x);

struct CellData {
  CellResult result = {};
  std::vector<RunData> runs = {};  ///< of result.runs the finished ones that count
  std::int64_t batch = 0, local_batch = 0;
  Median time = {}, accuracy = {}, best = {}, step = {},
         epochs = {};  ///< seconds to target; %; %; seconds; epochs to target
  double olympic_time = unknown;
  double wait_share = unknown;  ///< of the time, median of runs
  std::string withheld = {};    ///< why no speed-up of it is shown; "": nothing forbids it
  Median step_speedup = {},     ///< samples per second, over those of the best serial run
      time_speedup = {},        ///< time to target, alike
      device_speedup = {};      ///< time to target (without one: samples per second) over the best single-device run
  const StudyCell& cell() const { return result.cell; }
  bool has_finished() const { return result.finished > 0; }
};

/// Cells of one strategy, weak or strong, by ranks; the serial run first where it has one.
struct Family {
  std::string name = {};
  bool weak = false;
  std::vector<std::size_t> cells = {};  ///< of StudyData
  /// Amdahl's serial share (strong; T(P) / T(1) = f + (1 - f) / P) or Gustafson's (weak; S = P - f (P - 1)) by least
  /// squares of measured medians, and of both ends of their intervals; unknown: less than one cell beside the serial.
  Median serial_share = {};
};

struct StudyData {
  std::string path = {}, name = {};
  StudyResult result = {};  ///< without its cells, which are here
  std::vector<CellData> cells = {};
  std::vector<Family> families = {};
  std::vector<LedgerEntry> ledger = {};
  std::optional<StudyFacts> facts = {};
  std::optional<std::size_t> serial_by_speed = {}, serial_by_time = {},  ///< the best serial cell
      device_by_speed = {}, device_by_time = {};  ///< the best cell of one rank, whatever its strategy
  bool has_target() const { return result.question.options.target > 0; }
  bool is_synthetic() const { return result.question.is_synthetic(); }
  std::string setting(const std::string& name) const;  ///< without quotes; "–": there is none
  /// ", the first 8192 training samples only" where the study trained on a part of its data; else empty.
  std::string reduction() const;
};
/// "pipeline(micro=2), pipe=2", "data_parallel", "serial".
std::string name_of(const StudyCell&);
/// Throws Error for what is no study's directory.
StudyData read_study_data(const std::string& directory);

}  // namespace trireme
