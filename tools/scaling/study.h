// Study: what a scaling study asks, and the cells that it is made of. Its directory:
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

/// What is asked.
struct StudyOptions {
  std::vector<int> ranks{1};  ///< for the strategies without a size of their own; 1 is the serial run, always there
  /// "STRATEGY" or "MESH; STRATEGY" as of parallel.mesh and parallel.strategy: "pipe=2; pipeline(micro=4)" runs on the
  /// ranks of its mesh, once; "pipe=2,data=N; pipeline | data_parallel" on each of `ranks` above 1, N being what is
  /// left. Without a mesh all ranks lie on the strategy's own axis. "": the default, data_parallel.
  std::vector<std::string> strategies{""};
  int seeds = 5;         ///< runs of a cell: with settings.seed, settings.seed + 1, ...
  bool strong = true,    ///< data.batch is that of all ranks together, whatever their number
      weak = false,      ///< data.batch is multiplied by the ranks
      scale_lr = false;  ///< weak: so is the learning rate (optim.lr_base_size), after warm-up
  bool mpi = false;      ///< ranks are processes under mpiexec, not threads of one
  double target = 0;     ///< accuracy on the held-out set, %, to which time is taken; 0: none
  bool operator==(const StudyOptions&) const = default;
};

struct StudyCell {
  std::string name = {};     ///< of its folder: "strong-r2-tensor"
  std::string scaling = {};  ///< strong or weak; the serial run, which is of both, has that of the first
  std::string strategy = {},
              mesh = {};  ///< parallel.strategy and parallel.mesh; both empty on one rank: the serial run
  int ranks = 1;
  /// SHA-256 of the settings, but for the seed and what only says where a run reads, writes and prints: those that
  /// decide speed and accuracy, which are joined only where it is equal.
  std::string config_hash = {};
  bool is_serial() const { return ranks == 1 && strategy.empty(); }
};
/// A cell to run, with its settings (seed and run.dir are a run's).
struct PlannedCell : StudyCell {
  TrainerOptions settings = {};
};

/// Of a config.toml, or to_toml(settings).
std::string config_hash(const std::string& toml);
/// The serial run first; with parallel.threads given it is there twice, with so many threads and with those of all
/// cores, so that "the best serial run" is. Throws OptionError for a mesh that the numbers of ranks do not fit, and for
/// strategies asked for twice.
std::vector<PlannedCell> cells_of(const StudyOptions&, const TrainerOptions& settings);
/// Seed by seed, each time all cells in an order drawn anew (always the same): what changes on the machine meanwhile
/// falls on all alike. Cell and seed (from 0).
std::vector<std::pair<std::size_t, int>> order_of(std::size_t cells, int seeds);
/// What a run's start notes in the ledger, so that a study.toml changed since is found: "asked by study.toml, SHA-256
/// ...".
std::string asked_by(const std::string& directory);
/// "runs/CELL/seed_N", relative to the study's directory.
std::string run_of(const StudyCell&, std::int64_t seed);
/// The text of study.toml.
std::string to_toml(const StudyOptions&, const TrainerOptions& settings, const std::vector<PlannedCell>&);

/// What study.toml says.
struct StudyQuestion {
  StudyOptions options = {};
  std::int64_t first_seed = 1;
  std::map<std::string, std::string> settings = {};  ///< by dotted name, as TOML: {"data.name", "\"mnist\""}
  std::vector<StudyCell> cells = {};
  bool is_synthetic() const;  ///< data made up: to be said beside every number
};
/// Throws OptionError with file and line for what is no study.toml.
StudyQuestion parse_study(const std::string& toml, const std::string& source);
/// Of a directory. Throws Error where it holds none.
StudyQuestion read_study(const std::string& directory);

}  // namespace trireme
