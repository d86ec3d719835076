#include "tools/study/run_study.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <sstream>

#include "framework/io/file.h"
#include "tools/launch/job.h"
#include "tools/launch/supervisor.h"
#include "tools/study/asha.h"
#include "tools/study/grid.h"
#include "tools/study/lease.h"
#include "tools/study/study_facts.h"
#include "tools/study/study_result.h"
#include "tools/study/tune_result.h"
#include "tools/training/run_lock.h"
#include "tools/training/toml_file.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

constexpr int preempted = 85;
constexpr int most_deaths = 20;  // failures of workers without an evaluation or a finished trial in between

void print_study(const std::string& text) { fmt::print(stderr, "study: {}\n", text); }

/// Differences between two TOML texts: "optim.lr was 0.1 and is now 0.2".
std::string differences(const std::string& there, const std::string& now) {
  std::vector<std::string> found;
  auto a = read_own_toml(there), b = read_own_toml(now);
  const auto value = [](const std::map<std::string, std::string>& all, const std::string& name) {
    const auto at = all.find(name);
    return at == all.end() ? std::string("not given") : at->second;
  };
  for (const auto& [name, was] : a) b.try_emplace(name, "not given");
  for (const auto& [name, is] : b)
    if (!name.starts_with("[") && value(a, name) != is)
      found.push_back(fmt::format("{} was {} and is now {}", name, value(a, name), is));
  if (found.empty() && there != now) found.emplace_back("its cells are others (another version of trireme wrote it)");
  return fmt::format("{}", fmt::join(found, ", "));
}

std::string duration(double s) {
  const auto t = static_cast<std::int64_t>(s + 0.5);
  return fmt::format("{}:{:02}:{:02}", t / 3600, t / 60 % 60, t % 60);
}

/// Progress of a scaling study's cell, or of all its cells.
struct CellProgress {
  int finished = 0, left = 0;
  double seconds_left = 0;  ///< by the cell's mean, else that of all cells; NaN: no run has finished
};

/// One for each cell.
std::vector<CellProgress> progress_of(const Question& q, const std::vector<TrialRow>& trials) {
  std::vector<std::vector<double>> seconds(q.study->cells.size());
  std::vector<double> all;
  for (const TrialRow& t : trials)
    if (t.status == TrialStatus::finished) {
      seconds[static_cast<std::size_t>(t.point[0])].push_back(t.seconds);
      all.push_back(t.seconds);
    }
  std::vector<CellProgress> cells;
  for (const std::vector<double>& own : seconds) {
    const auto finished = static_cast<int>(own.size()), left = q.study->options.seeds - finished;
    cells.push_back({finished, left, left == 0 ? 0 : left * mean_of(own.empty() ? all : own)});
  }
  return cells;
}

CellProgress total_of(const std::vector<CellProgress>& cells) {
  CellProgress sum;
  for (const CellProgress& c : cells) {
    sum.finished += c.finished;
    sum.left += c.left;
    sum.seconds_left += c.seconds_left;
  }
  return sum;
}

/// The question without the options that may change: number of trials and how they are run.
Question comparable(Question q) {
  const TuneOptions none;
  q.options.trials = none.trials;
  q.options.parallel = none.parallel;
  q.options.launcher = none.launcher;
  q.options.retries = none.retries;
  q.options.lease = none.lease;
  return q;
}

/// Throws OptionError if the folder's question is not the one asked. more: further differences.
void refuse_other(const std::string& directory, const Question& there, const Question& asked,
                  const std::string& more = "") {
  std::string found = differences(to_toml(comparable(there)), to_toml(comparable(asked)));
  if (found.empty()) found = more;
  if (!found.empty())
    throw OptionError(
        fmt::format("{} holds another question: {}; give another --out, because a question cannot change "
                    "after its first run",
                    directory, found));
}

/// A log line for an event of a trial.
std::string line_of(const Question& q, const TrialEvent& e, const std::vector<TrialRow>& trials) {
  const TuneOptions& o = q.options;
  const TrialRow& t = trials[static_cast<std::size_t>(e.trial - 1)];
  if (q.study) {
    const CellProgress all = total_of(progress_of(q, trials));
    return fmt::format("{} of {}, {}: {} after {:.1f} s{}{}", e.trial, o.trials, q.entry(e.trial, t.point).run,
                       e.status, e.seconds, e.why.empty() ? "" : ": " + e.why,
                       all.seconds_left > 0 ? "; about " + duration(all.seconds_left) + " left" : "");
  }
  std::string value;
  if (!t.scores.empty())
    value = fmt::format(", epoch {}: {} {:.6g}", t.scores.back().first, o.key(), o.sign() * t.scores.back().second);
  return fmt::format("trial {} {} after {:.1f} s{}{} ({})", e.trial, e.status, e.seconds,
                     e.why.empty() ? "" : ": " + e.why, value, q.space.text(t.point));
}

class Search {
 public:
  Search(const std::string& directory, int parallel) : directory_(directory), store_(directory), count_(parallel) {
    if (count_ == 0) count_ = store_.question().options.parallel;
    if (const auto known = store_.events(); !known.empty()) told_ = known.back().number;
  }

  int run() {
    for (int i = 0; i < count_; ++i) start();
    bool stopping = false;
    while (live_ > 0) {
      const int signal = next_signal(0.2);
      if (signal == SIGINT && stopping) return 128 + SIGINT;
      if (signal != 0 && !stopping) {
        print_study("asked to stop: trainings stop after a step and save; the same command continues");
        stopping = true;
        for (auto& worker : workers_)
          if (worker->live) worker->job.signal(SIGTERM);
      }
      for (std::size_t i = 0; i < workers_.size(); ++i) look_at(*workers_[i], stopping);
      tell();
    }
    return stopping || preempted_ ? preempted : 0;
  }

 private:
  struct Process {
    explicit Process(const std::vector<std::string>& command) : job(command, true) {}
    Job job;  // its death kills all its descendants
    bool live = true;
  };
  void start() {
    workers_.push_back(std::make_unique<Process>(std::vector<std::string>{
        own_program(), "study", "run", "--worker", directory_, "--share", std::to_string(count_)}));
    ++live_;
  }
  void look_at(Process& worker, bool stopping) {
    if (!worker.live || !worker.job.poll()) return;
    worker.live = false;
    --live_;
    const int status = worker.job.status();
    if (status == preempted) preempted_ = true;
    if (status == 0 || status == preempted || stopping || !store_.error().empty()) return;
    const auto events = store_.events();
    const std::size_t progress =
        store_.reports().size() + static_cast<std::size_t>(std::ranges::count(events, "finished", &TrialEvent::status));
    deaths_ = progress == progress_ ? deaths_ + 1 : 1;
    progress_ = progress;
    const std::string why =
        !worker.job.last_words().empty() ? worker.job.last_words() : fmt::format("it ended with status {}", status);
    check(may_pass(status) && deaths_ <= most_deaths, kind_of_status(status).value_or(ErrorKind::internal), "study",
          "{} workers in a row failed, so no more are started: {}", deaths_, why);
    print_study(fmt::format("a worker failed, and another is started: {}", why));
    start();
  }
  void tell() {
    using Clock = std::chrono::steady_clock;
    if (live_ > 0 && Clock::now() - last_ < std::chrono::milliseconds(500)) return;
    last_ = Clock::now();
    const auto events = store_.events(told_);
    if (events.empty()) return;
    told_ = events.back().number;
    const Question q = store_.question();
    const auto trials = store_.trials();
    for (const TrialEvent& e : events)
      if (e.status != "started") print_study(line_of(q, e, trials));
  }

  std::string directory_;
  StudyStore store_;
  int count_, live_ = 0, deaths_ = 0;
  bool preempted_ = false;
  std::size_t progress_ = 0;
  std::int64_t told_ = 0;
  std::chrono::steady_clock::time_point last_ = {};
  std::vector<std::unique_ptr<Process>> workers_;
};

}  // namespace

void keep_question(const std::string& directory, const Question& question, const TrainerOptions& settings) {
  make_directories(directory);
  const RunLock alone(directory);
  if (!StudyStore::exists(directory)) {
    if (fs::exists(directory + "/" + ledger_file))
      throw OptionError(fmt::format("{} has a ledger but no {}; give another --out", directory, store_file));
    return StudyStore::create(directory, question, to_toml(settings));
  }
  StudyStore store(directory);
  refuse_other(directory, store.question(), question, differences(store.settings(), to_toml(settings)));
  if (question.options.trials > store.trials_wanted()) store.want_trials(question.options.trials);
}

void add_trials(const std::string& directory, std::int64_t trials) {
  StudyStore store(directory);
  const Question q = store.question();
  if (q.study) throw OptionError("--trials is for searches, but a scaling study has cells and seeds; leave it out");
  if (trials < q.options.trials)
    throw OptionError(
        fmt::format("--trials is {}, but the search has {}; the number can only grow", trials, q.options.trials));
  if (q.options.algorithm == "grid" && trials > std::ssize(GridSearch::points(q.space, trials)))
    throw OptionError(fmt::format("--trials is {}, but the grid has fewer points; leave out --trials", trials));
  store.want_trials(trials);
}

void print_cells(const std::string& directory, const Question& question, const std::vector<PlannedCell>& cells) {
  const bool begun = StudyStore::exists(directory);
  std::vector<TrialRow> trials;
  if (begun) {
    StudyStore store(directory);
    refuse_other(directory, store.question(), question);
    trials = store.trials();
  }
  const std::vector<CellProgress> progress = progress_of(question, trials);
  const auto time = [](double s) { return std::isnan(s) ? std::string("unknown") : duration(s); };
  fmt::print("{:<56} {:>5} {:>8} {:>9} {:>6} {:>10}\n", "cell", "ranks", "batch", "finished", "left", "time left");
  for (std::size_t i = 0; i < cells.size(); ++i)
    fmt::print("{:<56} {:>5} {:>8} {:>9} {:>6} {:>10}\n", cells[i].name, cells[i].ranks, cells[i].settings.data.batch,
               progress[i].finished, progress[i].left, time(progress[i].seconds_left));
  const CellProgress all = total_of(progress);
  fmt::print("{} runs are left, {}\n", all.left,
             std::isnan(all.seconds_left) ? "the time is unknown until one has finished"
                                          : "about " + duration(all.seconds_left));
  if (begun) fmt::print("\n{}", table_of(study_result(directory)));
}

namespace {

/// Prints a scaling study's results. Returns 1 if runs failed.
int finish(const StudyResult& result) {
  fmt::print("{}", table_of(result));
  int wrong = 0;
  for (const CellResult& c : result.cells)
    for (const RunOutcome& run : c.runs)
      if (c.weak == (c.cell.scaling == "weak") && (run.status == "failed" || run.status == "invalid")) {
        print_study(fmt::format("{}: {}: {}", run.run, run.status, run.why));
        ++wrong;
      }
  if (wrong > 0)
    print_study(
        fmt::format("{} run{} failed; the same command runs them again; to repeat an invalid run, remove its folder",
                    wrong, wrong == 1 ? "" : "s"));
  return wrong > 0 ? 1 : 0;
}

}  // namespace

int run_study(const std::string& directory, const TrainerOptions& settings, int parallel, bool retry) {
  int status = 0;
  bool scaling = false;
  {
    const RunLock alone(directory);
    StudyStore store(directory);
    store.check_ledger();
    store.forgive(retry);
    if (const auto question = store.question(); question.study) {
      scaling = true;
      check(read_study(directory).toml == question.study->toml, ErrorKind::data, "study",
            "{}/{} is not the question that {} holds; was it edited?", directory, study_file, store_file);
      keep_facts(directory, settings);
    }
    status = Search(directory, parallel).run();
  }
  StudyStore(directory).write_ledger();
  if (scaling) {
    const int failed = finish(study_result(directory));
    return status != 0 ? status : failed;
  }
  const TuneResult result = tune_result(directory);
  check(result.error.empty(), "study", "{}", result.error);
  fmt::print("{}", table_of(result));
  return status != 0 ? status : result.best() ? 0 : 1;
}

std::string slurm_script(const std::string& directory, const TuneOptions& options, int workers,
                         const std::string& program) {
  const bool processes = options.launcher != "threads";
  if ((directory + program).find_first_of(" \t\n'%\\") != std::string::npos)
    throw OptionError(fmt::format("--slurm: a batch script cannot name {} or {}; use folder names of plain letters",
                                  directory, program));
  return fmt::format(R"(#!/bin/bash
# Workers of the search in this folder, each a task of a job array. Each takes trials until none is left; more may be
# added at any time, and one that is killed loses nothing: sbatch --array=1-20 --time=4:00:00 workers.sbatch
#SBATCH --job-name=study
#SBATCH --nodes=1
#SBATCH --ntasks={}
#SBATCH --cpus-per-task={}
#SBATCH --time=24:00:00
#SBATCH --array=1-{}
#SBATCH --open-mode=append
#SBATCH --output={}/slurm-%A_%a.log
#SBATCH --signal=B:TERM@120
#SBATCH --requeue

exec '{}' study run --worker '{}'
)",
                     processes ? options.ranks : 1, processes ? 1 : options.ranks, workers, directory, program,
                     directory);
}

}  // namespace trireme
