#include "tools/scaling/runner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include "framework/io/file.h"
#include "framework/io/json.h"
#include "kernels/core/error.h"
#include "tools/launch/job.h"
#include "tools/scaling/study_facts.h"
#include "tools/scaling/study_result.h"
#include "tools/training/run_dir.h"
#include "tools/training/run_lock.h"
#include "tools/training/toml_file.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

constexpr int preempted = 85;  // train's exit status when it was asked to stop

void print_scaling(const std::string& text) { fmt::print(stderr, "scaling: {}\n", text); }

std::string duration(double s) {
  const auto t = static_cast<std::int64_t>(s + 0.5);
  return fmt::format("{}:{:02}:{:02}", t / 3600, t / 60 % 60, t % 60);
}

/// Differences between two texts of study.toml: "optim.lr was 0.1 and is now 0.2".
std::vector<std::string> differences(const std::string& there, const std::string& now) {
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
  if (found.empty()) found.emplace_back("its cells are others (another version of trireme wrote it)");
  return found;
}

/// Writes study.toml, or compares it with the existing file.
void keep_question(const std::string& directory, const std::string& toml, bool write) {
  const std::string path = directory + "/" + study_file;
  if (!fs::exists(path)) {
    if (fs::exists(directory + "/" + ledger_file))
      throw OptionError(fmt::format("{} has a ledger but no {}; give another --out", directory, study_file));
    if (write) replace_file(path, toml);
    return;
  }
  const std::string there = read_settings(path);
  if (there == toml) return;
  const auto found = differences(there, toml);
  throw OptionError(
      fmt::format("{} holds another study: {}; give another --out, because a study cannot change after its first run",
                  directory, fmt::join(found, ", ")));
}

/// Seconds of a run whose end was not recorded: up to the last change in its directory.
double seconds_to_last_sign(const std::string& run, double begin) {
  double last = begin;
  std::error_code none;
  for (fs::recursive_directory_iterator it(run, none), end; !none && it != end; it.increment(none)) {
    struct stat s {};
    if (::stat(it->path().c_str(), &s) == 0)
      last = std::max(last, static_cast<double>(s.st_mtim.tv_sec) + static_cast<double>(s.st_mtim.tv_nsec) * 1e-9);
  }
  return last - begin;
}

std::string exit_reason(int status) {
  return status > 128 && status <= 192 ? fmt::format("ended by signal {} ({})", status - 128, ::strsignal(status - 128))
                                       : fmt::format("ended with status {}", status);
}

std::string status_text(const std::string& run) {
  const std::string path = run + "/" + result_file;
  const Json result = fs::exists(path) ? parse_json(read_text(path, std::size_t{1} << 20)) : Json();
  return value_or<std::string>(result, "status", "");
}

using Runs = std::vector<std::pair<std::size_t, std::int64_t>>;  // cells and seeds

/// The runs that are left, in order.
Runs todo(const std::string& directory, const StudyOptions& study, std::int64_t first_seed,
          const std::vector<PlannedCell>& cells, const std::vector<LedgerEntry>& ledger) {
  std::map<std::string, std::string> status;
  for (const LedgerEntry& e : ledger) status[e.run] = e.status;
  Runs left;
  for (const auto& [cell, nth] : order_of(cells.size(), study.seeds)) {
    const std::string run = run_of(cells[cell], first_seed + nth);
    if (status[run] != "finished" || !fs::exists(directory + "/" + run)) left.emplace_back(cell, first_seed + nth);
  }
  return left;
}

/// Expected seconds of a run: the mean of the cell's finished runs, else of all cells' runs. NaN without any.
double estimate(const std::vector<LedgerEntry>& ledger, const std::string& cell) {
  std::vector<double> own, all;
  for (const LedgerEntry& e : ledger) {
    if (e.status != "finished") continue;
    all.push_back(e.seconds);
    if (e.cell == cell) own.push_back(e.seconds);
  }
  return mean_of(own.empty() ? all : own);
}

double estimate(const std::vector<LedgerEntry>& ledger, const std::vector<PlannedCell>& cells, const Runs& runs) {
  double sum = 0;
  for (const auto& [cell, seed] : runs) sum += estimate(ledger, cells[cell].name);
  return sum;
}

class Runner {
 public:
  Runner(const StudyOptions& study, const TrainerOptions& settings, const std::vector<PlannedCell>& cells,
         const RunnerOptions& options)
      : study_(study), first_seed_(settings.seed), cells_(cells), options_(options) {}

  int run() {
    close_open_runs();
    const Runs left = todo(options_.directory, study_, first_seed_, cells_, read());
    for (std::size_t i = 0; i < left.size(); ++i) {
      const auto& [cell, seed] = left[i];
      if (const int signal = next_signal(0)) {
        print_scaling(fmt::format("asked to stop (signal {}); the same command continues", signal));
        return preempted;
      }
      if (!run_one(cells_[cell], seed, fmt::format("{} of {}", i + 1, left.size()))) return preempted;
    }
    return 0;
  }

 private:
  LedgerEntry entry(const StudyCell& cell, std::int64_t seed, const std::string& status) const {
    return {.run = run_of(cell, seed),
            .cell = cell.name,
            .scaling = cell.scaling,
            .strategy = cell.strategy,
            .mesh = cell.mesh,
            .ranks = cell.ranks,
            .seed = seed,
            .config_hash = cell.config_hash,
            .status = status};
  }
  std::vector<LedgerEntry> read() const { return LedgerReader(options_.directory).entries(); }

  /// Records the end of runs that were killed with an earlier call.
  void close_open_runs() {
    for (LedgerEntry e : open_runs(read())) {
      const double begin = unix_seconds(e.time);
      e.status = "interrupted";
      e.time.clear();
      e.why = "the study was killed; seconds are up to the last change in the run directory";
      e.seconds = seconds_to_last_sign(options_.directory + "/" + e.run, begin);
      e.device_seconds = e.seconds * e.ranks;
      ledger_.append(std::move(e));
    }
  }

  std::vector<std::string> command_of(const PlannedCell& cell, std::int64_t seed) const {
    const std::string settings = fmt::format("{}/runs/{}/settings.toml", options_.directory, cell.name);
    make_directories(options_.directory + "/runs/" + cell.name);
    replace_file(settings, to_toml(cell.settings));
    std::vector<std::string> command;
    if (study_.mpi && cell.ranks > 1) command = {"mpiexec", "-n", std::to_string(cell.ranks)};
    command.insert(command.end(),
                   {fs::read_symlink("/proc/self/exe"), "train", "--config", settings, "--seed", std::to_string(seed),
                    "--run.dir", options_.directory + "/" + run_of(cell, seed), "--run.resume", "auto"});
    return command;
  }

  /// Returns false if asked to stop.
  bool run_one(const PlannedCell& cell, std::int64_t seed, const std::string& place) {
    using Clock = std::chrono::steady_clock;
    const auto since = [](Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); };
    const std::vector<std::string> command = command_of(cell, seed);
    LedgerEntry e = entry(cell, seed, "started");
    e.why = asked_by(options_.directory);
    ledger_.append(e);
    e.why.clear();
    fs::remove(options_.directory + "/" + e.run + "/" + result_file);  // the result of an earlier attempt
    const auto start = Clock::now();
    std::optional<Clock::time_point> asked;
    bool killed = false;
    std::string hung;  // why the start has failed
    {
      Job job(command, true);
      while (!job.poll() && !killed && hung.empty()) {
        const int signal = next_signal(0.2);
        if (signal != 0 && !asked) print_scaling(fmt::format("asked to stop: {} stops after a step and saves", e.run));
        killed = (signal == SIGINT && asked) || (asked && since(*asked) > options_.grace);
        if (signal != 0 && !asked) {
          asked = Clock::now();
          job.signal(SIGTERM);
        }
        hung = job.hung_start(command[0] == "mpiexec" || command[0] == "srun" ? cell.ranks : 1);
      }
      e.seconds = since(start);
      e.device_seconds = e.seconds * cell.ranks;
      const std::string told = status_text(options_.directory + "/" + e.run);
      if (job.status() == 0 && told == "finished")
        e.status = "finished";
      else if (killed || asked || job.status() == preempted || told == "preempted") {
        e.status = "interrupted";
        e.why = killed ? "killed: it did not stop when asked" : "asked to stop";
      } else {
        e.status = "failed";
        e.why = !hung.empty()               ? hung
                : !job.last_words().empty() ? job.last_words()
                : job.status() == 0         ? "it ended without a result"
                                            : exit_reason(job.status());
      }
    }
    ledger_.append(e);
    const auto ledger = read();
    const double rest = estimate(ledger, cells_, todo(options_.directory, study_, first_seed_, cells_, ledger));
    print_scaling(fmt::format("{}, {}: {} after {:.1f} s{}{}", place, e.run, e.status, e.seconds,
                              e.why.empty() ? "" : ": " + e.why,
                              rest > 0 ? "; some " + duration(rest) + " are left" : ""));
    check(e.status != "failed" || (e.why != exit_reason(126) && e.why != exit_reason(127)), ErrorKind::file, "scaling",
          "{} cannot be started any more, so the study stops; check whether it, or a library of it, was replaced",
          command[0]);
    return !asked && e.status != "interrupted";
  }

  const StudyOptions& study_;
  std::int64_t first_seed_;
  const std::vector<PlannedCell>& cells_;
  const RunnerOptions& options_;
  LedgerWriter ledger_{options_.directory};
};

/// Prints a line per cell: finished runs, runs that are left, and their expected time.
void print_cells(const std::string& directory, const StudyOptions& study, std::int64_t first_seed,
                 const std::vector<PlannedCell>& cells) {
  const auto ledger = LedgerReader(directory).entries();
  const Runs left = todo(directory, study, first_seed, cells, ledger);
  const auto time = [](double s) { return std::isnan(s) ? std::string("unknown") : duration(s); };
  fmt::print("{:<56} {:>5} {:>8} {:>9} {:>6} {:>10}\n", "cell", "ranks", "batch", "finished", "left", "time left");
  for (const PlannedCell& cell : cells) {
    Runs own = left;
    std::erase_if(own, [&](const auto& run) { return cells[run.first].name != cell.name; });
    fmt::print("{:<56} {:>5} {:>8} {:>9} {:>6} {:>10}\n", cell.name, cell.ranks, cell.settings.data.batch,
               study.seeds - std::ssize(own), own.size(), time(estimate(ledger, cells, own)));
  }
  fmt::print("{} runs are left, {}\n", left.size(),
             std::isnan(estimate(ledger, cells, left)) ? "the time is unknown until one has finished"
                                                       : "some " + duration(estimate(ledger, cells, left)));
}

}  // namespace

int run_study(const StudyOptions& study, const TrainerOptions& settings, const std::vector<PlannedCell>& cells,
              const RunnerOptions& options) {
  const std::string toml = to_toml(study, settings, cells);
  keep_question(options.directory, toml, false);
  if (options.dry_run) {
    print_cells(options.directory, study, settings.seed, cells);
    if (fs::exists(options.directory + "/" + study_file)) fmt::print("\n{}", table_of(study_result(options.directory)));
    return 0;
  }
  make_directories(options.directory);
  const RunLock lock(options.directory);
  keep_question(options.directory, toml, true);
  keep_facts(options.directory, settings);
  const int status = Runner(study, settings, cells, options).run();
  const StudyResult result = study_result(options.directory);
  fmt::print("{}", table_of(result));
  int wrong = 0;
  for (const CellResult& c : result.cells)
    for (const RunOutcome& run : c.runs)
      if (c.weak == (c.cell.scaling == "weak") && (run.status == "failed" || run.status == "invalid")) {
        print_scaling(fmt::format("{}: {}: {}", run.run, run.status, run.why));
        ++wrong;
      }
  if (wrong > 0)
    print_scaling(fmt::format("{} run{} failed; the same command runs them again", wrong, wrong == 1 ? "" : "s"));
  return status != 0 ? status : wrong > 0 ? 1 : 0;
}

}  // namespace trireme
