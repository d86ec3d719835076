#include "tools/tune/tuner.h"

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>

#include "framework/io/file.h"
#include "tools/launch/job.h"
#include "tools/launch/supervisor.h"
#include "tools/training/run_lock.h"
#include "tools/tune/asha.h"
#include "tools/tune/grid.h"
#include "tools/tune/lease.h"
#include "tools/tune/tune_result.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

constexpr int preempted = 85;
constexpr int most_deaths = 20;  // failures of workers without an evaluation in between

void print_tune(const std::string& text) { fmt::print(stderr, "tune: {}\n", text); }

/// The first differing line of two texts: "trials = 40 there, trials = 50 now".
std::string difference(const std::string& there, const std::string& now) {
  std::istringstream a(there), b(now);
  for (std::string was, is;;) {
    const bool more = static_cast<bool>(std::getline(a, was)), also = static_cast<bool>(std::getline(b, is));
    if (!more && !also) return "";
    if (!more) was.clear();
    if (!also) is.clear();
    if (was != is) return fmt::format("{} there, {} now", was.empty() ? "nothing" : was, is.empty() ? "nothing" : is);
  }
}

/// The question without the options that may change: number of trials and how they are run.
TuneQuestion comparable(TuneQuestion q) {
  const TuneOptions none;
  q.options.trials = none.trials;
  q.options.parallel = none.parallel;
  q.options.launcher = none.launcher;
  q.options.retries = none.retries;
  q.options.lease = none.lease;
  return q;
}

/// A log line for an event of a trial.
std::string line_of(const TuneOptions& o, const Space& space, const TrialEvent& e, const TrialRow& t) {
  std::string value;
  if (!t.scores.empty())
    value = fmt::format(", epoch {}: {} {:.6g}", t.scores.back().first, o.key(), o.sign() * t.scores.back().second);
  return fmt::format("trial {} {} after {:.1f} s{}{} ({})", e.trial, e.status, e.seconds,
                     e.why.empty() ? "" : ": " + e.why, value, space.text(t.point));
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
        print_tune("asked to stop: trials stop after a step and save; the same command continues");
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
    workers_.push_back(std::make_unique<Process>(
        std::vector<std::string>{own_program(), "tune", "--worker", directory_, "--share", std::to_string(count_)}));
    ++live_;
  }
  void look_at(Process& worker, bool stopping) {
    if (!worker.live || !worker.job.poll()) return;
    worker.live = false;
    --live_;
    const int status = worker.job.status();
    if (status == preempted) preempted_ = true;
    if (status == 0 || status == preempted || stopping || !store_.error().empty()) return;
    const std::size_t reports = store_.reports().size();
    deaths_ = reports == reports_ ? deaths_ + 1 : 1;
    reports_ = reports;
    const std::string why =
        !worker.job.last_words().empty() ? worker.job.last_words() : fmt::format("it ended with status {}", status);
    check(may_pass(status) && deaths_ <= most_deaths, kind_of_status(status).value_or(ErrorKind::internal), "tune",
          "{} workers in a row failed, so no more are started: {}", deaths_, why);
    print_tune(fmt::format("a worker failed, and another is started: {}", why));
    start();
  }
  void tell() {
    using Clock = std::chrono::steady_clock;
    if (live_ > 0 && Clock::now() - last_ < std::chrono::milliseconds(500)) return;
    last_ = Clock::now();
    const auto events = store_.events(told_);
    if (events.empty()) return;
    told_ = events.back().number;
    const TuneQuestion q = store_.question();
    const auto trials = store_.trials();
    for (const TrialEvent& e : events)
      if (e.status != "started")
        print_tune(line_of(q.options, q.space, e, trials[static_cast<std::size_t>(e.trial - 1)]));
  }

  std::string directory_;
  TuneStore store_;
  int count_, live_ = 0, deaths_ = 0;
  bool preempted_ = false;
  std::size_t reports_ = 0;
  std::int64_t told_ = 0;
  std::chrono::steady_clock::time_point last_ = {};
  std::vector<std::unique_ptr<Process>> workers_;
};

}  // namespace

void keep_search(const std::string& directory, const TuneQuestion& question, const TrainerOptions& settings) {
  make_directories(directory);
  const RunLock alone(directory);
  if (!TuneStore::exists(directory)) return TuneStore::create(directory, question, to_toml(settings));
  TuneStore store(directory);
  std::string found = difference(to_toml(comparable(store.question())), to_toml(comparable(question)));
  if (found.empty()) found = difference(store.settings(), to_toml(settings));
  if (!found.empty())
    throw OptionError(fmt::format("{} holds another search: {}; give another --out", directory, found));
  if (question.options.trials > store.trials_wanted()) store.want_trials(question.options.trials);
}

void add_trials(const std::string& directory, std::int64_t trials) {
  TuneStore store(directory);
  const TuneQuestion q = store.question();
  if (trials < q.options.trials)
    throw OptionError(
        fmt::format("--trials is {}, but the search has {}; the number can only grow", trials, q.options.trials));
  if (q.options.algorithm == "grid" && trials > std::ssize(GridSearch::points(q.space, trials)))
    throw OptionError(fmt::format("--trials is {}, but the grid has fewer points; leave out --trials", trials));
  store.want_trials(trials);
}

int run_search(const std::string& directory, int parallel, bool retry) {
  int status = 0;
  {
    const RunLock alone(directory);
    TuneStore(directory).forgive(retry);
    status = Search(directory, parallel).run();
  }
  TuneStore(directory).write_ledger();
  const TuneResult result = tune_result(directory);
  check(result.error.empty(), "tune", "{}", result.error);
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
#SBATCH --job-name=tune
#SBATCH --nodes=1
#SBATCH --ntasks={}
#SBATCH --cpus-per-task={}
#SBATCH --time=24:00:00
#SBATCH --array=1-{}
#SBATCH --open-mode=append
#SBATCH --output={}/slurm-%A_%a.log
#SBATCH --signal=B:TERM@120
#SBATCH --requeue

exec '{}' tune --worker '{}'
)",
                     processes ? options.ranks : 1, processes ? 1 : options.ranks, workers, directory, program,
                     directory);
}

}  // namespace trireme
