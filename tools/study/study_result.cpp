#include "tools/study/study_result.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <set>

#include "framework/io/file.h"
#include "framework/io/json.h"
#include "framework/io/lines.h"
#include "tools/study/store.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

/// The start of a run's process in Unix time, and its duration.
struct TimedAttempt {
  double begin = 0, seconds = 0;
};

/// Seconds of the run's processes up to a moment: without the pauses between attempts.
double elapsed(const std::vector<TimedAttempt>& attempts, double unix) {
  double before = 0;
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    if (i + 1 == attempts.size() || unix < attempts[i + 1].begin)
      return before + std::max(0.0, unix - attempts[i].begin);
    before += attempts[i].seconds;
  }
  return before;
}

/// Evaluations from the MLPerf log. If an epoch was evaluated twice, the later one counts.
std::vector<std::pair<double, double>> accuracy_curve(const std::string& directory,
                                                      const std::vector<TimedAttempt>& attempts) {
  std::map<std::int64_t, std::pair<double, double>> by_epoch;
  each_line(directory + "/mllog.txt", [&](std::string_view line) {
    if (!line.starts_with(":::MLLOG ")) return;
    const Json json = parse_json(line.substr(9));
    if (value_or<std::string>(json, "key", "") != "eval_accuracy" || !json.contains("value") ||
        !json["value"].is_number())
      return;
    const double unix = value_or(json, "time_ms", 0.0) / 1000;
    by_epoch[value_or<std::int64_t>(json.value("metadata", Json()), "epoch_num", 0)] = {
        elapsed(attempts, unix), std::round(1e10 * json["value"].get<double>()) / 1e8};
  });
  std::vector<std::pair<double, double>> curve;
  for (const auto& [epoch, point] : by_epoch) curve.push_back(point);
  return curve;
}

/// Reads speed and accuracy of a finished run.
void add_metrics(RunOutcome& run, const std::string& directory, double batch) {
  std::vector<double> step;
  each_line(directory + "/metrics.jsonl", [&](std::string_view line) {
    const Json json = parse_json(line);
    const std::string kind = value_or<std::string>(json, "kind", "");
    if (kind != "eval" && kind != "test") return;  // test: of a run with a validation split
    if (json.contains("test_top1") && json["test_top1"].is_number()) {
      run.accuracy = json["test_top1"].get<double>();
      run.best = std::isnan(run.best) ? run.accuracy : std::max(run.best, run.accuracy);
    }
    const double per_s =
        json.contains("images_per_s") && json["images_per_s"].is_number() ? json["images_per_s"].get<double>() : 0;
    if (per_s > 0) step.push_back(batch / per_s);
  });
  run.step_seconds = median_of(step);
  run.samples_per_s = batch / run.step_seconds;
}

RunOutcome outcome_of(const std::string& directory, const StudyCell& cell, std::int64_t seed,
                      const std::vector<LedgerEntry>& ledger, std::vector<std::string>& faults) {
  RunOutcome run{.seed = seed, .run = run_of(cell, seed), .status = "missing"};
  std::vector<TimedAttempt> attempts;
  const LedgerEntry* last = nullptr;
  for (const LedgerEntry& e : ledger) {
    if (e.run != run.run) continue;
    if (last && last->status == "finished" && e.status == "started") {
      ++run.repeats;
      attempts.clear();
    }
    last = &e;
    run.failures += e.status == "failed";
    if (e.status == "started")
      attempts.push_back({unix_seconds(e.time), 0});
    else if (!attempts.empty())
      attempts.back().seconds = e.seconds;
  }
  if (!last) return run;
  run.status = last->status == "started" ? "running" : last->status;
  run.why = last->why;
  run.attempts = static_cast<int>(attempts.size());
  for (const TimedAttempt& a : attempts) run.seconds += a.seconds;
  const std::string path = directory + "/" + run.run;
  run.curve = accuracy_curve(path, attempts);
  if (run.status != "finished") return run;
  const auto fault = [&](const std::string& why) {
    run.status = "invalid";
    run.why = why;
    faults.push_back(fmt::format("{}: {}", run.run, why));
    return run;
  };
  if (!fs::is_regular_file(path + "/config.toml")) return fault("it has finished, but its directory is missing");
  const std::string config = read_text(path + "/config.toml", std::size_t{1} << 20);
  if (last->config_hash != cell.config_hash || config_hash(config) != cell.config_hash)
    return fault("its settings differ from the study's, so speed and accuracy are not of one configuration");
  if (!last->results.empty() && last->results != results_hash(path))
    return fault("its files were changed after it ended, by the hash in the ledger");
  run.others = last->others;
  double batch = 0;
  const std::string text = read_own_toml(config)["data.batch"];
  if (std::sscanf(text.c_str(), "%lf", &batch) != 1) return fault("config.toml has no data.batch");
  add_metrics(run, path, batch);
  return run;
}

/// Reports runs of the ledger that study.toml does not ask for, and runs that were started with another study.toml.
void compare_with_ledger(StudyResult& all, const std::vector<LedgerEntry>& ledger) {
  std::set<std::string> asked, strange;
  for (const StudyCell& cell : all.question.cells)
    for (std::int64_t s = 0; s < all.question.options.seeds; ++s)
      asked.insert(run_of(cell, all.question.first_seed + s));
  const std::string now = all.question.asked_by();
  int others = 0, started = 0;
  for (const LedgerEntry& e : ledger) {
    if (!asked.contains(e.run)) strange.insert(e.cell);
    if (e.status == "started") {
      ++started;
      others += e.why != now;
    }
  }
  if (!strange.empty())
    all.faults.push_back(fmt::format(
        "{}: there are runs that {} does not ask for, of the cells {}: cells or seeds were removed from the study",
        ledger_file, study_file, fmt::join(strange, ", ")));
  if (others > 0)
    all.faults.push_back(
        fmt::format("{}: by the hash in the ledger it is not the file that {} of {} runs were started with", study_file,
                    others, started));
}

/// Reports finished runs whose data differ from the first one's.
void compare_data(StudyResult& all, const std::string& directory) {
  std::string first, text;
  for (const CellResult& c : all.cells)
    for (const RunOutcome& run : c.runs) {
      const std::string path = directory + "/" + run.run + "/data.json";
      if (run.status != "finished" || !fs::is_regular_file(path)) continue;
      std::string own = read_text(path, std::size_t{1} << 20);
      if (first.empty()) {
        first = run.run;
        text = std::move(own);
      } else if (own != text) {
        all.faults.push_back(fmt::format("{} was trained on other data than {}, by their data.json", run.run, first));
      }
    }
}

void summarise(CellResult& c, double target) {
  std::vector<double> accuracy, step, time, others;
  double batch = unknown;  // equal for all runs
  for (const RunOutcome& run : c.runs) {
    c.finished += run.status == "finished";
    c.failed += run.status == "failed";
    c.after_failure += run.status == "finished" && run.failures > 0;
    c.repeated += run.repeats > 0;
    if (run.status == "failed") time.push_back(never);
    if (run.status != "finished") continue;
    if (!std::isnan(run.accuracy)) accuracy.push_back(run.accuracy);
    if (run.others >= 0) others.push_back(run.others);
    if (!std::isnan(run.step_seconds)) {
      step.push_back(run.step_seconds);
      batch = run.samples_per_s * run.step_seconds;
    }
    time.push_back(run.to_target);
    c.reached += run.to_target < never;
  }
  if (!others.empty()) c.others = median_of(others);
  c.accuracy = mean_of(accuracy);
  c.accuracy_sd = standard_deviation(accuracy);
  c.step_seconds = median_of(step);
  c.step_interval = median_interval(step);
  c.samples_per_s = batch / c.step_seconds;
  if (target > 0) c.to_target = median_of(time);
}

std::string decimal(double v, int digits, const std::string& unit = "") {
  if (std::isnan(v)) return "-";
  return std::isinf(v) ? "never" : fmt::format("{:.{}f}{}", v, digits, unit);
}

std::string cell_seconds(double v) {
  if (std::isnan(v)) return "-";
  return std::isinf(v) ? "never" : v < 60 ? fmt::format("{:.1f} s", v) : fmt::format("{:.1f} min", v / 60);
}

std::string row_of(const CellResult& c, int seeds, bool best) {
  const std::string name =
      c.cell.strategy.empty() ? c.cell.is_serial() ? c.cell.name : "data_parallel" : c.cell.strategy;
  std::string runs = c.finished == seeds && seeds >= 5 ? fmt::format("{}", seeds)
                     : c.finished == 0                 ? "none"
                     : few_runs(c.finished).empty()    ? fmt::format("{} of {}", c.finished, seeds)
                                                       : few_runs(c.finished);
  if (c.after_failure > 0) runs += fmt::format(", {} after a failure", c.after_failure);
  if (c.repeated > 0) runs += fmt::format(", {} repeated", c.repeated);
  const std::string accuracy =
      std::isnan(c.accuracy_sd) ? decimal(c.accuracy, 2) : fmt::format("{:.2f} +- {:.2f}", c.accuracy, c.accuracy_sd);
  std::string step = decimal(1e3 * c.step_seconds, 2);
  if (c.finished > 1) step += fmt::format(" [{:.2f}, {:.2f}]", 1e3 * c.step_interval.low, 1e3 * c.step_interval.high);
  const std::string reached = std::isnan(c.to_target) ? "" : fmt::format(" ({}/{})", c.reached, c.finished + c.failed);
  return fmt::format("{:<50} {:<16} {:>5} {:>26} {:>6} {:>15} {:>24} {:>11} {:>16} {:>9}\n", name, c.cell.mesh,
                     c.cell.ranks, runs, c.failed, accuracy, step, decimal(c.samples_per_s, 0),
                     cell_seconds(c.to_target) + reached,
                     best                    ? "1 (base)"
                     : std::isnan(c.speedup) ? "-"
                                             : fmt::format("{:.2f}", c.speedup));
}

}  // namespace

std::string few_runs(int finished) {
  return finished >= 5 ? "" : finished == 1 ? "single run" : fmt::format("{} runs", finished);
}

StudyResult study_result(const std::string& directory) {
  StudyResult all{.question = read_study(directory)};
  const LedgerReader ledger(directory);
  all.faults = ledger.faults();
  all.totals = totals_of(ledger.entries());
  all.ledger_head = ledger.head();
  if (StudyStore::exists(directory)) {
    StudyStore store(directory);
    const bool under_way = std::ranges::count(store.trials(), TrialStatus::running, &TrialRow::status) > 0;
    for (std::string& fault : differences(store, ledger.entries(), under_way)) all.faults.push_back(std::move(fault));
  } else if (!ledger.entries().empty()) {
    all.warnings.push_back(fmt::format("{} is gone: the ledger cannot be compared with it", store_file));
  }
  compare_with_ledger(all, ledger.entries());
  const StudyOptions& o = all.question.options;
  for (const StudyCell& cell : all.question.cells) {
    CellResult c{.cell = cell, .weak = cell.scaling == "weak"};
    for (std::int64_t s = 0; s < o.seeds; ++s) {
      c.runs.push_back(outcome_of(directory, cell, all.question.first_seed + s, ledger.entries(), all.faults));
      if (o.target > 0) c.runs.back().to_target = time_to(c.runs.back().curve, o.target);
    }
    summarise(c, o.target);
    all.cells.push_back(c);
  }
  std::vector<double> others;
  for (const CellResult& c : all.cells)
    for (const RunOutcome& run : c.runs)
      if (run.others >= 0) others.push_back(run.others);
  if (!others.empty()) {
    all.others = median_of(others);
    all.most_others = std::ranges::max(others);
  }
  compare_data(all, directory);
  const std::size_t own = all.cells.size();
  for (std::size_t i = 0; i < own; ++i)  // serial cells are in both tables
    if (all.cells[i].cell.ranks == 1 && o.strong && o.weak) {
      CellResult again = all.cells[i];
      again.weak = true;
      all.cells.push_back(std::move(again));
    }
  const CellResult* best = nullptr;
  for (const CellResult& c : all.cells)
    if (c.cell.is_serial() && !std::isnan(c.samples_per_s) && !std::isnan(c.accuracy) &&
        (!best || c.samples_per_s > best->samples_per_s))
      best = &c;
  for (const CellResult& c : all.cells)
    for (const RunOutcome& run : c.runs)
      if (run.repeats > 0 && c.weak == (c.cell.scaling == "weak"))
        all.warnings.push_back(
            fmt::format("{} ran again, because its folder was gone; finished before: {}", run.run, run.repeats));
  if (!best) return all;
  all.best_serial = static_cast<std::size_t>(best - all.cells.data());
  for (CellResult& c : all.cells)
    if (!std::isnan(c.accuracy)) {
      c.speedup = c.samples_per_s / best->samples_per_s;
      if (c.speedup > c.cell.ranks)
        all.warnings.push_back(fmt::format("{}: a speed-up of {:.2f} on {} rank{}; was the serial run disturbed?",
                                           c.cell.name, c.speedup, c.cell.ranks, c.cell.ranks == 1 ? "" : "s"));
    }
  return all;
}

std::string others_text(const StudyResult& all) {
  if (all.others < 0) return "";
  std::string text = fmt::format(
      "other programs used {:.0f} % of the machine's CPU time during a median run, and {:.0f} % during the worst",
      100 * all.others, 100 * all.most_others);
  const CellResult *least = nullptr, *most = nullptr;
  for (const CellResult& c : all.cells) {
    if (c.others < 0) continue;
    if (!least || c.others < least->others) least = &c;
    if (!most || c.others > most->others) most = &c;
  }
  if (least && most->others - least->others > 0.1)
    text += fmt::format(", from {:.0f} % with {} to {:.0f} % with {}: their speeds cannot be compared",
                        100 * least->others, least->cell.name, 100 * most->others, most->cell.name);
  return text;
}

std::string table_of(const StudyResult& all) {
  const StudyOptions& o = all.question.options;
  const auto setting = [&](const char* name) {
    const auto at = all.question.settings.find(name);
    const std::string text = at == all.question.settings.end() ? "?" : at->second;
    return text.starts_with('"') ? text.substr(1, text.size() - 2) : text;
  };
  std::string text = fmt::format("{} on {}{}, {} epochs, {} seed{} from {}\n", setting("model"), setting("data.name"),
                                 all.question.is_synthetic() ? " (SYNTHETIC DATA: accuracy says nothing)" : "",
                                 setting("epochs"), o.seeds, o.seeds == 1 ? "" : "s", all.question.first_seed);
  if (setting("data.limit") != "0")
    text += fmt::format("reduced data: the first {} training samples\n", setting("data.limit"));
  const double coverage = [&] {
    double least = 1;
    for (const CellResult& c : all.cells)
      if (c.finished > 1) least = std::min(least, c.step_interval.coverage);
    return least;
  }();
  for (const bool weak : {false, true}) {
    if (weak ? !o.weak : !o.strong) continue;
    text += weak ? fmt::format("\nweak scaling: a batch of {} per rank, the learning rate {}\n", setting("data.batch"),
                               o.scale_lr ? "in proportion to the batch" : "as it is")
                 : fmt::format("\nstrong scaling: a batch of {} over all ranks\n", setting("data.batch"));
    text +=
        fmt::format("{:<50} {:<16} {:>5} {:>26} {:>6} {:>15} {:>24} {:>11} {:>16} {:>9}\n", "strategy", "mesh", "ranks",
                    "runs", "failed", "accuracy %", fmt::format("step ms [{:.0f} %]", 100 * std::min(0.95, coverage)),
                    "samples/s", o.target > 0 ? fmt::format("to {:g} %", o.target) : "to target", "speed-up");
    for (const CellResult& c : all.cells)
      if (c.weak == weak)
        text += row_of(c, o.seeds, !std::isnan(c.speedup) && c.cell.name == all.cells[*all.best_serial].cell.name);
  }
  text +=
      "\naccuracy: of the held-out set after the last epoch, mean and standard deviation over seeds. step: wall time "
      "with "
      "waiting for data, median over seeds";
  if (coverage < 0.95)
    text += fmt::format(
        "; the interval of so few runs is from the least to the most, and holds the median with {:.1f} % at least",
        100 * coverage);
  text += fmt::format(
      ".\nspeed-up: samples per second over those of the best serial run ({}). Time to accuracy: from the start of the "
      "process, failed runs as never.\nledger: {} runs started, {} finished, {} failed, {} interrupted, {:.2f} device "
      "hours",
      all.best_serial ? all.cells[*all.best_serial].cell.name : "none has finished", all.totals.started,
      all.totals.finished, all.totals.failed, all.totals.interrupted, all.totals.device_seconds / 3600);
  text += all.ledger_head.empty() ? "\n" : fmt::format("; its last hash {}\n", all.ledger_head);
  if (const std::string others = others_text(all); !others.empty()) text += "load: " + others + "\n";
  for (const auto* list : {&all.warnings, &all.faults})
    for (const std::string& warning : *list) text += "WARNING " + warning + "\n";
  return text;
}

}  // namespace trireme
