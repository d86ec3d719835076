// trireme study: combines a file with options and a training into a question, runs it, or prints its results.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "framework/io/file.h"
#include "kernels/core/text.h"
#include "tools/cli/commands.h"
#include "tools/cli/config_file.h"
#include "tools/cli/described_plan.h"
#include "tools/launch/job.h"
#include "tools/study/run_study.h"
#include "tools/study/study_result.h"
#include "tools/study/tune_result.h"
#include "tools/study/worker.h"
#include "tools/training/toml_file.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

constexpr const char* example = "trireme study run space.toml --out DIR -- train mnist_cnn --epochs 9";

[[noreturn]] void refuse_study(const std::string& text) { throw OptionError("study: " + text); }

TrainerOptions settings_in(const std::string& directory) {
  TrainerOptions settings;
  parse_config(settings, StudyStore(directory).settings(), directory + "/settings.toml", OldNames::read);
  return settings;
}

/// Throws if the environment would limit a scaling study's serial run.
void check_cores() {
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  const char* limit = std::getenv("OMP_NUM_THREADS");
  if (int given = 0; limit && parse_number(limit, given) && given < cores)
    refuse_study(fmt::format(
        "OMP_NUM_THREADS={} limits the serial run, the baseline, to {} of {} cores; unset it, and limit the "
        "ranks with --parallel.threads",
        given, given, cores));
}

int work(const StudyCommand& c) {
  if (StudyStore(c.worker).question().study) check_cores();
  const int status = run_worker(c.worker, settings_in(c.worker), c.share);
  const std::string why = StudyStore(c.worker).error();
  check(status != 1, "study", "{}", why);
  return status;
}

/// Options of the file, overridden by those of the command line.
StudyOptions asked_runs(const StudyCommand& c, StudyOptions study) {
  if (!c.ranks.empty()) {
    study.ranks.clear();
    for (const std::string& piece : split_text(c.ranks, ','))
      if (int& ranks = study.ranks.emplace_back(); !parse_number(piece, ranks) || ranks < 1 || ranks > 65536)
        throw OptionError(fmt::format("--ranks is '{:.80}', expected a list, for example 1,2,4", c.ranks));
  }
  if (!c.strategies.empty()) study.strategies = c.strategies;
  if (c.seeds > 0) study.seeds = c.seeds;
  if (c.target >= 0) study.target = c.target;
  if (c.weak || c.strong) {
    study.weak = c.weak;
    study.strong = c.strong;
  }
  study.scale_lr = study.scale_lr || c.scale_lr;
  study.mpi = study.mpi || c.mpi;
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
        "study: {} on {} rank{}{}: {}", cell.strategy.empty() ? "the default strategy" : "'" + cell.strategy + "'",
        cell.ranks, cell.ranks == 1 ? "" : "s", cell.mesh.empty() ? "" : ", mesh " + cell.mesh, e.what()));
  }
}

Question asked_cells(const StudyCommand& c, const StudyOptions& file, const TrainerOptions& settings,
                     std::vector<PlannedCell>& cells) {
  const StudyOptions study = asked_runs(c, file);
  if (!study.weak && !study.strong) refuse_study("neither weak nor strong scaling is chosen; add --weak or --strong");
  if (study.scale_lr && !study.weak)
    throw OptionError("--scale_lr is for --weak, because strong scaling keeps the batch; leave it out");
  if (c.trials > 0) throw OptionError("--trials is for searches; a scaling study has cells and --seeds");
  if (c.parallel > 1 || c.slurm > 0)
    throw OptionError(
        "--parallel and --slurm are for searches; a scaling study measures time, so its runs follow each other");
  if (settings.parallel.ranks != 1 || !settings.parallel.mesh.empty() || !settings.parallel.strategy.empty())
    refuse_study("parallel.ranks, mesh and strategy are set per cell; use --ranks, --strategy or [study]");
  if (settings.parallel.virtual_ranks > 0) refuse_study("its runs take real time; leave out --virtual");
  if (!settings.run.replay.empty()) refuse_study("run.replay repeats one run, but a study has many; leave it out");
  if (study.mpi && run_quietly({"mpiexec", "--version"}) != 0)
    refuse_study("--mpi needs mpiexec in PATH; install MPI, or leave out --mpi");
  check_cores();
  cells = cells_of(study, settings);
  for (const PlannedCell& cell : cells) check_plan(cell);
  return question_of(parse_study(to_toml(study, settings, cells), study_file));
}

Question asked_trials(const StudyCommand& c, Question question, const TrainerOptions& settings) {
  if (!c.ranks.empty() || !c.strategies.empty() || c.seeds > 0 || c.target >= 0 || c.weak || c.strong || c.scale_lr ||
      c.mpi)
    refuse_study("ranks, strategies, seeds and a target are for scaling studies; a search has [tune] and [space]");
  if (c.trials > 0) question.options.trials = c.trials;
  if (c.parallel > 0) question.options.parallel = c.parallel;
  complete(question, settings);
  if (const std::string left = left_out_of_grid(question); !left.empty()) fmt::print(stderr, "study: {}\n", left);
  return question;
}

/// Prints a search and its first trials.
void print(const Question& q) {
  fmt::print("{}\n", to_toml(q));
  const auto search = make_algorithm(q.options, q.space);
  for (int i = 1; i <= std::min<std::int64_t>(10, q.options.trials); ++i) {
    const Suggestion s = search->suggest();
    if (s.kind != Suggestion::Kind::start) break;
    fmt::print("trial {}, {} epochs: {}\n", i, s.target, q.space.text(s.point));
    search->observe({.id = i, .point = s.point, .target = s.target});
  }
}

int submit(const StudyCommand& c) {
  const std::string folder = fs::absolute(c.out).lexically_normal().string(), script = folder + "/workers.sbatch";
  const std::string program = fs::read_symlink("/proc/self/exe");
  replace_file(script, slurm_script(folder, StudyStore(c.out).question().options, c.slurm, program));
  fmt::print("{}\n", script);
  if (c.dry_run) return 0;
  std::fflush(stdout);
  Job job({"sbatch", script});
  while (!job.poll()) (void)next_signal(0.1);
  const int status = job.status();
  check(status == 0, ErrorKind::file, "study", "sbatch {} failed with status {}; submit the script by hand", script,
        status);
  return 0;
}

int run(const StudyCommand& c) {
  if (!c.worker.empty()) {
    if (!c.what.empty() || !c.words.empty())
      refuse_study("a worker reads all settings from the study's folder; give --worker DIR alone");
    return work(c);
  }
  if (c.out.empty()) refuse_study("the folder of the study is missing; add --out DIR");
  const bool continues = c.what.empty() && c.words.empty() && StudyStore::exists(c.out);
  Question question;
  TrainerOptions settings;
  std::vector<PlannedCell> cells;
  if (continues) {
    settings = settings_in(c.out);
    question = StudyStore(c.out).question();
    if (question.study) question = asked_cells(c, question.study->options, settings, cells);
  } else {
    const std::string text = c.what.empty() ? "[study]" : read_settings(c.what);
    parse_config(settings, text, c.what, OldNames::refused, {"study", "cell", "tune", "space"});
    question = parse_question(text, c.what);
    const bool has_model = parse_toml(text, c.what).contains("model");
    settings = training_of("study", example, c.words.empty() && has_model ? std::vector<std::string>{"train"} : c.words,
                           settings);
    if (!settings.run.dir.empty() || settings.run.resume != "no" || settings.run.max_steps > 0)
      refuse_study("each run has its own directory; leave out --run.dir, --resume and --run.max_steps");
    question = question.study ? asked_cells(c, question.study->options, settings, cells)
                              : asked_trials(c, std::move(question), settings);
  }
  if (c.dry_run && c.slurm == 0) {
    if (question.study)
      print_cells(c.out, question, cells);
    else
      print(question);
    return 0;
  }
  if (!continues || question.study)
    keep_question(c.out, question, settings);
  else if (c.trials > 0)
    add_trials(c.out, c.trials);
  const int parallel = c.parallel > 0 || continues ? c.parallel : question.options.parallel;
  return c.slurm > 0 ? submit(c) : run_study(c.out, settings, parallel, c.retry);
}

}  // namespace

void add_options(CLI::App& command, StudyCommand& s) {
  command.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  command.add_option("action", s.action, "run, or report: print the results")->required()->type_name("run|report");
  command
      .add_option("what", s.what,
                  "run: TOML file of settings with a scaling study [study], or a search [space] and [tune]; report: "
                  "folder of a study")
      ->type_name("FILE");
  command.add_option("--out", s.out, "folder of the study, new or to continue (report: .html, .json or .csv to write)")
      ->type_name("DIR");
  command.add_option("--ranks", s.ranks, "numbers of ranks, 1,2,4; a serial run on one rank is always included")
      ->type_name("LIST");
  command
      .add_option("--strategy", s.strategies,
                  "strategy, or mesh and strategy: \"pipe=2,data=N; pipeline | data_parallel\", with N for the "
                  "remaining ranks; may be given several times (default: data_parallel)")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command.add_option("--seeds", s.seeds, "runs per cell, with seeds from the training's --seed upwards (default: 5)")
      ->type_name("N")
      ->check(CLI::Range(1, 1000));
  command.add_flag("--strong", s.strong, "strong scaling: all ranks share data.batch (default)");
  command.add_flag("--weak", s.weak, "weak scaling: each rank has data.batch");
  command.add_flag("--scale_lr,--scale-lr", s.scale_lr, "weak: scale the learning rate with the batch");
  command
      .add_option("--target", s.target,
                  "report the time to an accuracy of X % on the test set, or the validation split")
      ->type_name("X")
      ->check(CLI::Range(0.0, 100.0));
  command.add_flag("--mpi", s.mpi, "start ranks as processes under mpiexec, not as threads");
  command.add_option("--trials", s.trials, "search: number of trials in all; an existing search may get more")
      ->type_name("N")
      ->check(CLI::Range(1, 100000));
  command.add_option("--parallel", s.parallel, "search: trials at the same time on this host")
      ->type_name("N")
      ->check(CLI::Range(1, 4096));
  command.add_flag("--retry", s.retry, "search: try failed trials again");
  command
      .add_option("--worker", s.worker, "work for the study of this folder, next to other workers, until it is done")
      ->type_name("DIR");
  command.add_option("--share", s.share, "worker: number of workers that share this host's cores (default: 1)")
      ->type_name("N")
      ->check(CLI::Range(1, 4096));
  command.add_option("--slurm", s.slurm, "search: write DIR/workers.sbatch, a job array of N workers, and submit it")
      ->type_name("N")
      ->check(CLI::Range(1, 100000));
  command.add_flag("--dry_run,--dry-run", s.dry_run,
                   "only print the cells, or the search and its first trials; with --slurm: only write the file");
}

int study_command(const StudyCommand& c) {
  adopt_orphans();  // before the first thread starts, since threads inherit the signal mask
  if (c.action == "run") return run(c);
  if (c.action != "report") refuse_study("'" + c.action + "' is neither run nor report");
  if (c.what.empty()) refuse_study("the folder is missing; use trireme study report DIR");
  if (!c.out.empty()) return report_command({c.what}, c.out);
  const bool scaling = fs::is_regular_file(c.what + "/" + study_file);
  check(scaling || !StudyStore(c.what).question().study, ErrorKind::data, "study", "{}/{} is missing", c.what,
        study_file);
  fmt::print("{}", scaling ? table_of(study_result(c.what)) : table_of(tune_result(c.what)));
  return 0;
}

}  // namespace trireme
