// Study: the question of a scaling study and its cells. The directory of a study:
//
//   DIR/study.toml    the question: settings, [study], a [[cell]] each
//   DIR/ledger.jsonl  every run that was ever started (ledger.h)
//   DIR/runs/CELL/seed_N/  run directories
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/training/trainer_options.h"

namespace trireme {

inline constexpr const char* study_file = "study.toml";

/// The question.
struct StudyOptions {
  std::vector<int> ranks{1};  ///< for strategies without a fixed number of ranks; 1, the serial run, is always included
  /// "STRATEGY" or "MESH; STRATEGY", in the notation of parallel.mesh and parallel.strategy. "pipe=2;
  /// pipeline(micro=4)" runs once, on the ranks of its mesh. "pipe=2,data=N; pipeline | data_parallel" runs on each
  /// number of `ranks` above 1; N is the rest. Without a mesh all ranks are on the strategy's own axis. "": the
  /// default, data_parallel.
  std::vector<std::string> strategies{""};
  int seeds = 5;         ///< runs per cell, with seeds settings.seed, settings.seed + 1, ...
  bool strong = true,    ///< strong scaling: data.batch is the batch of all ranks
      weak = false,      ///< weak scaling: data.batch is multiplied by the ranks
      scale_lr = false;  ///< weak: also multiply the learning rate (optim.lr_base_size), after warm-up
  bool mpi = false;      ///< start ranks as processes under mpiexec, not as threads
  double target = 0;     ///< accuracy on the held-out set in %, to which time is measured; 0: none
  bool operator==(const StudyOptions&) const = default;
};

struct StudyCell {
  std::string name = {};     ///< name of its folder: "strong-r2-tensor"
  std::string scaling = {};  ///< strong or weak; the serial run belongs to both, and has the first one's
  std::string strategy = {},
              mesh = {};  ///< parallel.strategy and parallel.mesh; both empty on one rank: the serial run
  int ranks = 1;
  /// SHA-256 of the settings, without the seed and settings of reading, writing and printing. Speed and accuracy are
  /// combined only for equal hashes.
  std::string config_hash = {};
  bool is_serial() const { return ranks == 1 && strategy.empty(); }
};
/// A cell with its settings; each run sets seed and run.dir.
struct PlannedCell : StudyCell {
  TrainerOptions settings = {};
};

/// Hash of a config.toml, or of to_toml(settings).
std::string config_hash(const std::string& toml);
/// The cells, serial run first. If parallel.threads is given, there are two serial cells, with these threads and with
/// threads for all cores, so that the best serial run is known. Throws OptionError for a mesh that does not fit the
/// numbers of ranks, and for repeated strategies.
std::vector<PlannedCell> cells_of(const StudyOptions&, const TrainerOptions& settings);
/// Order of runs as (cell, seed from 0): seed by seed, each time all cells in a new, reproducible random order. So a
/// change of the machine's speed affects all cells alike.
std::vector<std::pair<std::size_t, int>> order_of(std::size_t cells, int seeds);
/// "runs/CELL/seed_N", relative to the study's directory.
std::string run_of(const StudyCell&, std::int64_t seed);
/// The text of study.toml.
std::string to_toml(const StudyOptions&, const TrainerOptions& settings, const std::vector<PlannedCell>&);

/// The contents of study.toml.
struct StudyQuestion {
  StudyOptions options = {};
  std::int64_t first_seed = 1;
  std::map<std::string, std::string> settings = {};  ///< by dotted name, as TOML: {"data.name", "\"mnist\""}
  std::vector<StudyCell> cells = {};
  std::string toml = {};  ///< the text
  /// Text that a run's start records in the ledger: "defined by study.toml, SHA-256 ...". It detects a later change of
  /// study.toml.
  std::string asked_by() const;
  bool is_synthetic() const;  ///< whether the data are synthetic, which every report must state
};
/// Throws OptionError with file and line for an invalid study.toml.
StudyQuestion parse_study(const std::string& toml, const std::string& source);
/// Reads DIR/study.toml. Throws Error if it is missing.
StudyQuestion read_study(const std::string& directory);

}  // namespace trireme
