// StudyData: the contents of a study's page, read from its directory: results by cell with medians and intervals, the
// speed-ups that may be shown, and families of cells that differ only in ranks.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tools/report/run_data.h"
#include "tools/study/study_facts.h"
#include "tools/study/study_result.h"

namespace trireme {

/// Median over runs and its interval (median_interval). A run that did not reach the target counts as infinity.
struct Median {
  double value = unknown;
  MedianInterval interval = {unknown, unknown, 0};
};
Median median_with_interval(const std::vector<double>&);  ///< of the known values
/// base / x of medians. The interval is formed from the extremes of both intervals, so its level is at least the
/// product of their levels (the runs are independent). NaN if a median is not finite.
Median ratio(const Median& base, const Median& x);

struct CellData {
  CellResult result = {};
  std::vector<RunData> runs = {};  ///< the finished and valid runs of result.runs
  std::int64_t batch = 0, local_batch = 0;
  Median time = {}, accuracy = {}, best = {}, step = {},
         epochs = {};  ///< seconds to the target; %; %; seconds; epochs to the target
  double olympic_time = unknown;
  double wait_share = unknown;  ///< share of the time spent waiting for data, median over runs
  std::string withheld = {};    ///< why its speed-ups are not shown; "": they are shown
  Median step_speedup = {},     ///< samples per second over those of the best serial run
      time_speedup = {},        ///< time to the target, likewise
      device_speedup = {};      ///< time to the target (without a target: samples per second) over the best
                                ///< single-device run
  const StudyCell& cell() const { return result.cell; }
  bool has_finished() const { return result.finished > 0; }
};

/// Cells of one strategy, weak or strong, ascending by ranks. Starts with the serial run if there is one.
struct Family {
  std::string name = {};
  bool weak = false;
  std::vector<std::size_t> cells = {};  ///< indices into StudyData::cells
  /// Serial share by Amdahl's law (strong: T(P) / T(1) = f + (1 - f) / P) or Gustafson's (weak: S = P - f (P - 1)).
  /// Fitted by least squares to measured medians, and to both ends of their intervals. NaN without a cell other than
  /// the serial one, if a speed-up is below 1, and if no share in [0, 1] fits.
  Median serial_share = {};
};

struct StudyData {
  std::string path = {}, name = {};
  StudyResult result = {};  ///< without its cells, which are in `cells`
  std::vector<CellData> cells = {};
  std::vector<Family> families = {};
  std::vector<LedgerEntry> ledger = {};
  std::optional<StudyFacts> facts = {};
  std::optional<std::size_t> serial_by_speed = {}, serial_by_time = {},  ///< indices of the best serial cells
      device_by_speed = {}, device_by_time = {};  ///< indices of the best cells of one rank, of any strategy
  bool has_target() const { return result.question.options.target > 0; }
  bool is_synthetic() const { return result.question.is_synthetic(); }
  std::string setting(const std::string& name) const;  ///< without quotes; "–" if it is missing
  /// ", the first 8192 training samples only" if the study trained on a part of its data; else "".
  std::string reduction() const;
};
/// "pipeline(micro=2), pipe=2", "data_parallel", "serial".
std::string name_of(const StudyCell&);
/// Throws Error if the directory holds no study.
StudyData read_study_data(const std::string& directory);

}  // namespace trireme
