// trireme tune: combines a search file with a training; or works for a search, or prints its results.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "framework/io/file.h"
#include "tools/cli/commands.h"
#include "tools/cli/config_file.h"
#include "tools/launch/job.h"
#include "tools/report/report_json.h"
#include "tools/training/toml_file.h"
#include "tools/tune/tuner.h"
#include "tools/tune/worker.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void refuse_search(const std::string& text) { throw OptionError("tune: " + text); }

int work(const TuneCommand& c) {
  TrainerOptions settings;
  parse_config(settings, TuneStore(c.worker).settings(), c.worker + "/settings.toml", OldNames::read);
  const int status = run_worker(c.worker, settings, c.share);
  const std::string why = TuneStore(c.worker).error();
  check(status != 1, "tune", "{}", why);
  return status;
}

int show(const TuneCommand& c) {
  if (c.directory.empty()) refuse_search("the search is missing; use trireme tune report DIR --out page.html");
  const TuneResult result = tune_result(c.directory);
  if (!c.out.empty()) write_report(json_of(result), c.out);
  fmt::print("{}", c.out.empty() ? table_of(result) : c.out + "\n");
  return 0;
}

/// The search, and the training's settings.
std::pair<TuneQuestion, TrainerOptions> asked_trials(const TuneCommand& c) {
  const TrainerOptions settings =
      training_of("tune", "trireme tune space.toml --out DIR -- train mnist_cnn --epochs 9", c.words);
  if (!settings.run.dir.empty() || settings.run.resume != "no" || settings.run.max_steps > 0)
    refuse_search("each trial has its own run directory; leave out --run.dir, --resume and --run.max_steps");
  TuneQuestion question = parse_tune(read_settings(c.what), c.what);
  if (c.trials > 0) question.options.trials = c.trials;
  if (c.parallel > 0) question.options.parallel = c.parallel;
  complete(question, settings);
  if (const std::string left = left_out_of_grid(question); !left.empty()) fmt::print(stderr, "tune: {}\n", left);
  return {std::move(question), settings};
}

/// Prints the search and its first trials.
void print(const TuneQuestion& q) {
  fmt::print("{}\n", to_toml(q));
  const auto search = make_algorithm(q.options, q.space);
  for (int i = 1; i <= std::min<std::int64_t>(10, q.options.trials); ++i) {
    const Suggestion s = search->suggest();
    if (s.kind != Suggestion::Kind::start) break;
    fmt::print("trial {}, {} epochs: {}\n", i, s.target, q.space.text(s.point));
    search->observe({.id = i, .point = s.point, .target = s.target});
  }
}

int submit(const TuneCommand& c) {
  const std::string folder = fs::absolute(c.out).lexically_normal().string(), script = folder + "/workers.sbatch";
  const std::string program = fs::read_symlink("/proc/self/exe");
  replace_file(script, slurm_script(folder, TuneStore(c.out).question().options, c.slurm, program));
  fmt::print("{}\n", script);
  if (c.dry_run) return 0;
  std::fflush(stdout);
  Job job({"sbatch", script});
  while (!job.poll()) (void)next_signal(0.1);
  const int status = job.status();
  check(status == 0, ErrorKind::file, "tune", "sbatch {} failed with status {}; submit the script by hand", script,
        status);
  return 0;
}

}  // namespace

void add_options(CLI::App& command, TuneCommand& t) {
  command.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  command.add_option("what", t.what, "TOML file with the parameters [space] and the search [tune]; or the word report")
      ->type_name("FILE|report");
  command.add_option("dir", t.directory, "report: folder of the search")->type_name("DIR");
  command
      .add_option("--out", t.out,
                  "folder of the search; an existing search continues (report: file to write, .html, .json or .csv)")
      ->type_name("DIR");
  command
      .add_option("--worker", t.worker, "work for the search of this folder, next to other workers, until it is done")
      ->type_name("DIR");
  command.add_option("--trials", t.trials, "number of trials in all; an existing search may get more")
      ->type_name("N")
      ->check(CLI::Range(1, 100000));
  command.add_option("--parallel", t.parallel, "trials at the same time on this host")
      ->type_name("N")
      ->check(CLI::Range(1, 4096));
  command.add_option("--share", t.share, "worker: number of workers that share this host's cores (default: 1)")
      ->type_name("N")
      ->check(CLI::Range(1, 4096));
  command.add_option("--slurm", t.slurm, "write DIR/workers.sbatch, a job array of N workers, and submit it")
      ->type_name("N")
      ->check(CLI::Range(1, 100000));
  command.add_flag("--retry", t.retry, "try failed trials again");
  command.add_flag("--dry_run,--dry-run", t.dry_run,
                   "only print the search and its first trials; with --slurm: only write the file");
}

int tune_command(const TuneCommand& c) {
  adopt_orphans();  // before the first thread starts, since threads inherit the signal mask
  if (!c.worker.empty()) {
    if (!c.what.empty() || !c.words.empty())
      refuse_search("a worker reads all settings from the search's folder; give --worker DIR alone");
    return work(c);
  }
  if (c.what == "report") return show(c);
  if (!c.directory.empty())
    refuse_search(fmt::format("unexpected argument '{:.200}'; give the folder with --out DIR", c.directory));
  if (c.out.empty()) refuse_search("the folder of the search is missing; add --out DIR");
  int parallel = c.parallel;
  if (!c.what.empty()) {
    const auto [question, settings] = asked_trials(c);
    if (c.dry_run && c.slurm == 0) {
      print(question);
      return 0;
    }
    keep_search(c.out, question, settings);
    parallel = question.options.parallel;
  } else {
    if (!c.words.empty())
      refuse_search("the file of parameters is missing; use trireme tune space.toml --out DIR -- train ...");
    const TuneQuestion question = TuneStore(c.out).question();
    if (c.dry_run && c.slurm == 0) {
      print(question);
      return 0;
    }
    if (c.trials > 0) add_trials(c.out, c.trials);
  }
  return c.slurm > 0 ? submit(c) : run_search(c.out, parallel, c.retry);
}

}  // namespace trireme
