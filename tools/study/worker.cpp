#include "tools/study/worker.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "framework/io/checkpoint.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "framework/io/lines.h"
#include "kernels/core/runtime.h"
#include "tools/launch/job.h"
#include "tools/launch/supervisor.h"
#include "tools/study/lease.h"
#include "tools/study/study.h"
#include "tools/training/from_options.h"
#include "tools/training/run_dir.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

using Clock = std::chrono::steady_clock;

constexpr int worker_preempted = 85;  // train's exit status when it was asked to stop
constexpr double grace = 60;          // seconds for a trial to stop after it was asked
constexpr const char *to_stop = "asked to stop",
                     *locked = "is being written by";  // message of RunLock: the trial's earlier worker still runs

double since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }
void worker_say(const std::string& text) { fmt::print(stderr, "study: {}\n", text); }

/// Copies the newest checkpoint of a trial, and files that continue with it, to another trial's run directory, unless
/// that has started.
void inherit(const std::string& from, const std::string& to, std::int64_t step) {
  if (has_checkpoints(to)) return;
  const std::string name = step_directory(step);
  make_directories(to + "/checkpoints");
  fs::remove_all(to + "/checkpoints/" + name + ".tmp");
  fs::copy(from + "/checkpoints/" + name, to + "/checkpoints/" + name + ".tmp", fs::copy_options::recursive);
  for (const char* file : {"config.toml", "metrics.jsonl"})
    fs::copy_file(from + "/" + file, to + "/" + file, fs::copy_options::overwrite_existing);
  rename_durably(to + "/checkpoints/" + name + ".tmp", to + "/checkpoints/" + name);
}

/// Seconds of CPU time: of the host (all of it, and what was not idle, with what the hypervisor took), and of this
/// process's ended children.
struct CpuTime {
  double all = 0, busy = 0, own = 0;
};
CpuTime cpu_time() {
  CpuTime t;
  std::ifstream in("/proc/stat");
  std::string word;
  double ticks = 0;
  in >> word;
  for (int field = 0; field < 8 && in >> ticks; ++field) {  // user nice system idle iowait irq softirq steal: proc(5)
    t.all += ticks;
    if (field != 3 && field != 4) t.busy += ticks;
  }
  const auto per_second = static_cast<double>(::sysconf(_SC_CLK_TCK));
  t.all /= per_second;
  t.busy /= per_second;
  rusage own{};
  ::getrusage(RUSAGE_CHILDREN, &own);
  for (const timeval& v : {own.ru_utime, own.ru_stime})
    t.own += static_cast<double>(v.tv_sec) + 1e-6 * static_cast<double>(v.tv_usec);
  return t;
}

class Worker {
 public:
  Worker(const std::string& directory, const TrainerOptions& settings, int share)
      : store_(directory), options_(store_.question().options), settings_(settings), share_(share) {
    if (question_.study)
      cells_ = cells_of(question_.study->options, settings_);
    else
      settings_.epochs = options_.epochs;
  }

  int run() {
    for (double pause = 0.05;;) {
      if (next_signal(0) != 0) return worker_preempted;
      const Taken taken = store_.take(me_, [&](const Point& p) { return hash_of(p); });
      if (!store_.error().empty()) return 1;
      if (taken.kind == Taken::Kind::done) return 0;
      if (taken.kind == Taken::Kind::wait) {
        if (next_signal(pause) != 0) return worker_preempted;
        pause = std::min(2.0, 1.5 * pause);
        continue;
      }
      pause = 0.05;
      if (!run_one(taken.lease)) return store_.error().empty() ? worker_preempted : 1;
    }
  }

 private:
  std::string hash_of(const Point& point) const {
    try {
      return config_hash(to_toml(settings_at(space_, point, settings_)));
    } catch (const OptionError&) { return "none"; }  // run_one() will say why
  }
  /// Steps per epoch with these settings.
  std::int64_t steps_per_epoch(const TrainerOptions& c) {
    const std::string key = to_toml(c);
    if (!steps_.contains(key)) {
      const std::int64_t samples = make_dataset(c, "train")->size(), batch = c.data.batch;
      steps_[key] = (samples + batch - 1) / batch;
    }
    return steps_[key];
  }

  std::string folder_of(const TrialState& trial) const {
    return store_.directory() + "/" + question_.entry(trial.id, trial.point).run;
  }

  /// Number of ranks that a trial's process joins under a launcher; 1 without.
  int joining(const TrialState& trial) const {
    if (question_.study) return question_.study->options.mpi ? question_.entry(trial.id, trial.point).ranks : 1;
    return options_.launcher == "mpiexec" || options_.launcher == "srun" ? options_.ranks : 1;
  }

  std::vector<std::string> command_of_run(const TrialState& trial) const {
    const auto cell = std::ranges::find(cells_, space_[0].text(trial.point[0]), &PlannedCell::name);
    check(cell != cells_.end() && cell->config_hash == question_.entry(trial.id, trial.point).config_hash,
          ErrorKind::data, "study", "cell {} has other settings than {}: another version of trireme wrote it",
          space_[0].text(trial.point[0]), study_file);
    const std::string run = folder_of(trial), settings = run.substr(0, run.rfind('/')) + "/settings.toml";
    make_directories(run.substr(0, run.rfind('/')));
    replace_file(settings, to_toml(cell->settings));
    fs::remove(run + "/" + result_file);  // of an earlier attempt
    std::vector<std::string> command;
    if (joining(trial) > 1) command = {"mpiexec", "-n", std::to_string(cell->ranks)};
    command.insert(command.end(), {own_program(), "train", "--config", settings, "--seed",
                                   space_[1].text(trial.point[1]), "--run.dir", run, "--run.resume", "auto"});
    return command;
  }

  std::vector<std::string> command_of_trial(const Lease& lease) {
    const TrialState& trial = lease.trial;
    if (question_.study) return command_of_run(trial);
    TrainerOptions c = settings_at(space_, trial.point, settings_);
    if (c.parallel.threads == 0 && options_.launcher == "threads")
      c.parallel.threads = std::max(1, cores() / (share_ * options_.ranks));
    const std::int64_t steps = steps_per_epoch(c);
    if (options_.algorithm == "pbt") c.checkpoint.keep_every = steps * options_.min_epochs;
    c.run.progress = "off";
    c.run.max_steps = 0;
    c.run.time_limit = 0;
    const std::string run = folder_of(trial),
                      settings = fmt::format("{}/settings/{:04}.toml", store_.directory(), trial.id);
    make_directories(store_.directory() + "/settings");
    replace_file(settings, to_toml(c));
    if (trial.parent > 0) inherit(trial_directory(store_.directory(), trial.parent), run, steps * trial.from_epoch);
    LaunchOptions launch;
    launch.launcher = options_.launcher;
    launch.program = {own_program(), "train", "--config", settings, "--run.dir", run};
    launch.go_on = {"--run.resume", "auto", "--run.max_steps", std::to_string(steps * trial.target)};
    if (trial.parent > 0) launch.go_on.insert(launch.go_on.end(), {"--run.override", "true"});
    return command_of(launch, {}, options_.ranks);
  }

  /// Reports new evaluations to the store. Returns false if the lease is lost.
  bool tell(const Lease& lease, std::size_t& told) {
    if (question_.study) return true;
    ReportedValues now = read_values(folder_of(lease.trial) + "/metrics.jsonl", options_.key());
    std::erase_if(now.values,
                  [&](const auto& v) { return v.first <= lease.trial.from_epoch || v.first > lease.trial.target; });
    unreported_ = now.unreported;
    if (now.values.size() == told) return true;
    told = now.values.size();
    return store_.report(lease, now.values);
  }

  static bool has_result(const std::string& run) {
    const std::string path = run + "/" + result_file;
    return fs::exists(path) &&
           value_or<std::string>(parse_json(read_text(path, std::size_t{1} << 20)), "status", "") == "finished";
  }

  bool is_below_median(const Lease& lease) {
    if (!options_.median_stop) return false;
    std::vector<TrialState> all;
    for (TrialRow& row : store_.trials()) all.push_back(std::move(row));
    return median_stops(options_, all, all[static_cast<std::size_t>(lease.trial.id - 1)]);
  }

  Outcome outcome_of(const Job& job, const Lease& lease, bool asked, bool stopped, double seconds) {
    using Kind = Outcome::Kind;
    if (stopped) return {Kind::stopped, "below the median of the others", seconds};
    const std::string run = folder_of(lease.trial);
    ReportedValues now;
    if (!question_.study) now = read_values(run + "/metrics.jsonl", options_.key());
    const bool whole =
        question_.study ? has_result(run) : !now.values.empty() && now.values.back().first >= lease.trial.target;
    if (job.status() == 0 && whole) return {Kind::reached, "", seconds};
    if (asked || job.status() == worker_preempted) return {Kind::interrupted, to_stop, seconds};
    const std::string& words = job.last_words();
    if (words.find(locked) != std::string::npos) return {Kind::interrupted, words, seconds};
    const int signal = job.status() > 128 ? job.status() - 128
                       : options_.launcher == "mpiexec" && words.empty() && job.status() < 32
                           ? job.status()  // status of a rank
                           : 0;
    if (signal > 0) return {Kind::killed, fmt::format("ended by signal {} ({})", signal, ::strsignal(signal)), seconds};
    if (job.status() == 0 && !now.unreported.empty())
      return {Kind::failed, fmt::format("{}{} is not finite, or not reported", diverged, options_.key()), seconds};
    if (kind_of_status(job.status()) == ErrorKind::numerics)
      return {Kind::failed, diverged + (words.empty() ? "a number is not finite" : words), seconds};
    return {Kind::failed,
            !words.empty()      ? words
            : job.status() == 0 ? "it ended without a result"
                                : fmt::format("ended with status {}", job.status()),
            seconds};
  }

  /// Gives the search up if no trial can report the objective. A loss is missing if it is not finite, so it does not
  /// count.
  bool is_hopeless(const Lease& lease, std::size_t told) {
    if (question_.study || told > 0 || unreported_.empty() || options_.key().ends_with("_loss") ||
        !store_.reports().empty())
      return false;
    store_.give_up(fmt::format("objective {} is never reported: the evaluations of trial {} have {}", options_.key(),
                               lease.trial.id, unreported_));
    return true;
  }
  void look_for_faults(const Outcome& outcome) {
    if (question_.study || outcome.kind != Outcome::Kind::failed || outcome.why.starts_with(diverged) ||
        !store_.reports().empty())
      return;
    const auto trials = store_.trials();
    const auto failed = std::ranges::count_if(
        trials, [](const TrialRow& t) { return t.status == TrialStatus::failed && !t.why.starts_with(diverged); });
    if (failed >= 3) store_.give_up(fmt::format("the first {} trials failed: {}", failed, outcome.why));
  }

  /// The command; empty, with the outcome, if the point's settings or its data are invalid.
  std::vector<std::string> command_or_fault(const Lease& lease, Outcome& outcome) {
    const std::string run = folder_of(lease.trial);
    if (lease.is_first && (has_checkpoints(run) || fs::is_regular_file(run + "/metrics.jsonl"))) {
      outcome = {Outcome::Kind::failed, planted, 0};
      return {};
    }
    try {
      return command_of_trial(lease);
    } catch (const std::exception& e) { outcome = {Outcome::Kind::failed, e.what(), 0}; }
    return {};
  }

  /// Returns false if asked to stop. Throws Error if no process can be started any more.
  bool run_one(const Lease& lease) {
    const auto start = Clock::now();
    std::optional<Clock::time_point> asked;
    bool stopped = false, lost = false;
    std::string gone;  // why no process can be started any more
    Outcome outcome;
    const std::vector<std::string> command = command_or_fault(lease, outcome);
    const CpuTime before = cpu_time();
    if (!command.empty()) try {
        Job job(command, true);
        const std::string hung = watch(lease, job, asked, stopped, lost);
        outcome = outcome_of(job, lease, asked && !stopped, stopped, since(start));
        if (!hung.empty()) {
          outcome.kind = Outcome::Kind::killed;
          outcome.why = hung;
        }
        if (job.status() == 126 || job.status() == 127)
          gone = fmt::format("{} ended with status {}", command[0], job.status());
      } catch (const Error& e) { gone = e.what(); }
    if (!gone.empty()) outcome = {Outcome::Kind::interrupted, gone, since(start)};
    const CpuTime after = cpu_time();
    if (after.all > before.all)
      outcome.others =
          std::clamp((after.busy - before.busy - (after.own - before.own)) / (after.all - before.all), 0.0, 1.0);
    if (options_.launcher == "srun") outcome.others = -1;  // its ranks are not children of this process
    if (!command.empty() && outcome.why.find(locked) == std::string::npos)
      outcome.results = results_hash(folder_of(lease.trial));
    if (lost || !store_.end(lease, outcome))
      worker_say(fmt::format("trial {} was taken over by another worker", lease.trial.id));
    else
      look_for_faults(outcome);
    check(gone.empty(), ErrorKind::file, "study", "{}; was the program, or a library of it, replaced?", gone);
    if (outcome.why.find(locked) != std::string::npos && next_signal(1) != 0) return false;
    return !(asked && !stopped) && outcome.why != to_stop;
  }

  /// Waits until the trial's process has ended or must be stopped. Returns why its ranks did not start; empty: they
  /// did.
  std::string watch(const Lease& lease, Job& job, std::optional<Clock::time_point>& asked, bool& stopped, bool& lost) {
    std::size_t told = 0;
    auto looked = Clock::now(), beaten = looked;
    std::string hung;
    while (!job.poll() && !lost) {
      if (hung = job.hung_start(joining(lease.trial)); !hung.empty()) return hung;
      const int signal = next_signal(0.1);
      if (signal == SIGINT && asked) break;
      if (signal != 0 && (!asked || stopped)) {
        asked = Clock::now();
        stopped = false;
        job.signal(SIGTERM);
      }
      if (asked && since(*asked) > grace) break;
      if (since(beaten) > std::min(10.0, options_.lease / 6)) {
        beaten = Clock::now();
        lost = !store_.beat(lease);
      }
      if (since(looked) < 0.25 || lost) continue;
      looked = Clock::now();
      const std::size_t before = told;
      lost = !tell(lease, told);
      if (lost || asked) continue;
      stopped = told != before && is_below_median(lease);
      if (stopped || is_hopeless(lease, told) || !store_.error().empty()) {
        asked = Clock::now();
        job.signal(SIGTERM);
      }
    }
    if (!lost) lost = !tell(lease, told);
    if (!lost && !asked && is_hopeless(lease, told)) asked = Clock::now();
    return "";
  }

  StudyStore store_;
  TuneOptions options_;
  Question question_ = store_.question();
  const Space& space_ = question_.space;
  TrainerOptions settings_;
  std::vector<PlannedCell> cells_;  // of a scaling study
  int share_;
  std::string me_ = own_identity(), unreported_;
  std::map<std::string, std::int64_t> steps_;
};

}  // namespace

ReportedValues read_values(const std::string& metrics, const std::string& key) {
  ReportedValues found;
  each_line(metrics, [&](std::string_view line) {
    const Json eval = parse_json(line);
    if (value_or<std::string>(eval, "kind", "") != "eval") return;
    const auto at = eval.find(key);
    if (at != eval.end() && at->is_number()) {
      found.values.emplace_back(value_or<std::int64_t>(eval, "epoch", 0), at->get<double>());
      return;
    }
    std::vector<std::string> keys;
    for (const auto& [name, value] : eval.items())
      if (value.is_number() && name != "epoch" && name != "step") keys.push_back(name);
    found.unreported = fmt::format("{}", fmt::join(keys, ", "));
  });
  return found;
}

int run_worker(const std::string& directory, const TrainerOptions& settings, int share) {
  return Worker(directory, settings, share).run();
}

}  // namespace trireme
