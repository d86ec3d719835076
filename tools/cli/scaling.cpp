// trireme scaling: combines a study file with options, and checks every cell's plan before the first run.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "kernels/core/text.h"
#include "tools/cli/commands.h"
#include "tools/cli/config_file.h"
#include "tools/cli/described_plan.h"
#include "tools/launch/job.h"
#include "tools/scaling/runner.h"
#include "tools/training/toml_file.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

/// Options of the file, overridden by those of the command line.
StudyOptions asked_runs(const ScalingCommand& command) {
  StudyOptions study;
  if (!command.study.empty()) study = parse_study(read_settings(command.study), command.study).options;
  if (!command.ranks.empty()) {
    study.ranks.clear();
    for (const std::string& piece : split_text(command.ranks, ','))
      if (int& ranks = study.ranks.emplace_back(); !parse_number(piece, ranks) || ranks < 1 || ranks > 65536)
        throw OptionError(fmt::format("--ranks is '{:.80}', expected a list, for example 1,2,4", command.ranks));
  }
  if (!command.strategies.empty()) study.strategies = command.strategies;
  if (command.seeds > 0) study.seeds = command.seeds;
  if (command.target >= 0) study.target = command.target;
  if (command.weak || command.strong) {
    study.weak = command.weak;
    study.strong = command.strong;
  }
  study.scale_lr = study.scale_lr || command.scale_lr;
  study.mpi = study.mpi || command.mpi;
  return study;
}

/// Throws with the strategy's message if it cannot train the model on these ranks.
void check_plan(const PlannedCell& cell) {
  try {
    validate(cell.settings);
    DescribedPlan described(cell.settings, mesh_axes(cell.settings), "equal");
    if (described.strategy.split.any()) described.imagine_ranks(cell.settings, described.plan);
  } catch (const Error& e) {
    throw OptionError(fmt::format(
        "scaling: {} on {} rank{}{}: {}", cell.strategy.empty() ? "the default strategy" : "'" + cell.strategy + "'",
        cell.ranks, cell.ranks == 1 ? "" : "s", cell.mesh.empty() ? "" : ", mesh " + cell.mesh, e.what()));
  }
}

}  // namespace

void add_options(CLI::App& command, ScalingCommand& s) {
  command.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  command.add_option("--out", s.out, "directory of the study; an existing study is continued")
      ->required()
      ->type_name("DIR");
  command
      .add_option("--study", s.study, "TOML file with settings and a [study] of ranks, strategies, seeds, target, ...")
      ->type_name("FILE");
  command.add_option("--ranks", s.ranks, "numbers of ranks, 1,2,4; a serial run on one rank is always included")
      ->type_name("LIST");
  command
      .add_option("--strategy", s.strategies,
                  "strategy, or mesh and strategy: \"pipe=2,data=N; pipeline | data_parallel\", with N for the "
                  "remaining ranks; may be given several times (default: data_parallel)")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command.add_option("--seeds", s.seeds, "runs per cell, with seeds from --seed upwards (default: 5)")
      ->type_name("N")
      ->check(CLI::Range(1, 1000));
  command.add_flag("--strong", s.strong, "strong scaling: all ranks share data.batch (default)");
  command.add_flag("--weak", s.weak, "weak scaling: each rank has data.batch");
  command.add_flag("--scale_lr,--scale-lr", s.scale_lr, "weak: scale the learning rate with the batch");
  command.add_option("--target", s.target, "report the time to an accuracy of X % on the test set")
      ->type_name("X")
      ->check(CLI::Range(0.0, 100.0));
  command.add_flag("--mpi", s.mpi, "start ranks as processes under mpiexec, not as threads");
  command.add_flag("--dry_run,--dry-run", s.dry_run, "only list the cells, their expected time, and finished results");
}

TrainerOptions scaling_base(ScalingCommand& command, bool model_given) {
  const std::string own = command.out + "/" + study_file;
  if (command.study.empty() && !model_given && fs::is_regular_file(own)) command.study = own;
  TrainerOptions base;
  if (!command.study.empty())
    parse_config(base, read_settings(command.study), command.study, OldNames::refused, {"study", "cell"});
  return base;
}

int scaling_command(const TrainerOptions& settings, const ScalingCommand& command) {
  adopt_orphans();  // before the first thread starts, since threads inherit the signal mask
  const StudyOptions study = asked_runs(command);
  if (!study.weak && !study.strong)
    throw OptionError("scaling: neither weak nor strong scaling is chosen; add --weak or --strong");
  if (study.scale_lr && !study.weak)
    throw OptionError("--scale_lr is for --weak, because strong scaling keeps the batch; leave it out");
  if (settings.parallel.ranks != 1 || !settings.parallel.mesh.empty() || !settings.parallel.strategy.empty())
    throw OptionError(
        "scaling: parallel.ranks, mesh and strategy are set per cell; use --ranks, --strategy or [study]");
  if (!settings.run.replay.empty())
    throw OptionError("scaling: run.replay repeats one run, but a study has many; leave it out");
  if (study.mpi && run_quietly({"mpiexec", "--version"}) != 0)
    throw OptionError("scaling: --mpi needs mpiexec in PATH; install MPI, or leave out --mpi");
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  if (int given = 0;
      std::getenv("OMP_NUM_THREADS") && parse_number(std::getenv("OMP_NUM_THREADS"), given) && given < cores)
    throw OptionError(
        fmt::format("scaling: OMP_NUM_THREADS={} limits the serial run, the baseline, to {} of {} cores; unset it, and "
                    "limit the ranks with --parallel.threads",
                    given, given, cores));
  const std::vector<PlannedCell> cells = cells_of(study, settings);
  for (const PlannedCell& cell : cells) check_plan(cell);
  return run_study(study, settings, cells, {.directory = command.out, .dry_run = command.dry_run});
}

}  // namespace trireme
