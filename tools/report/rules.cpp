#include "tools/report/rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "kernels/core/text.h"

namespace trireme {
namespace {

/// All values of an environment key over the runs, without duplicates.
std::set<std::string> seen(const StudyData& study, const std::string& key) {
  std::set<std::string> all;
  for (const CellData& c : study.cells)
    for (const RunData& run : c.runs)
      if (const std::string text = told(run.environment, key); text != "–") all.insert(text);
  return all;
}

void accuracy_beside_speed(const StudyData& study, Rule& r) {
  std::vector<std::string> withheld;
  for (const CellData& c : study.cells)
    if (!c.withheld.empty() && c.has_finished() && c.result.weak == (c.cell().scaling == "weak"))
      withheld.push_back(fmt::format("{} on {}: {}", name_of(c.cell()), c.cell().ranks, c.withheld));
  if (!withheld.empty()) r.told = fmt::format("No speed-up is shown of {}.", fmt::join(withheld, "; "));
}

void held_out(const StudyData& study, Rule& r) {
  if (study.is_synthetic()) {
    r.broken = "the data are made up: accuracy on them says nothing";
  } else if (!study.facts) {
    r.broken = "there is no facts.json, in which trireme study notes what the data are";
  } else if (study.facts->shared_samples < 0) {
    r.broken = "training and test samples were not compared: " + study.facts->not_compared;
  } else if (study.facts->shared_samples > 0) {
    r.broken = fmt::format("{} of {} test samples are also training samples, byte for byte",
                           study.facts->shared_samples, study.facts->test_samples);
  }
  if (study.facts && !study.facts->train_sha256.empty())
    r.told = fmt::format("SHA-256 of the training samples {:.16}..., of the test samples {:.16}...{}",
                         study.facts->train_sha256, study.facts->test_sha256,
                         study.facts->shared_samples == 0 ? "; they have no sample in common." : ".");
}

void ledger(const StudyData& study, Rule& r) {
  const LedgerTotals& t = study.result.totals;
  r.told = fmt::format("{} runs started, {} finished, {} failed, {} interrupted, {:.2f} device-hours.", t.started,
                       t.finished, t.failed, t.interrupted, t.device_seconds / 3600);
  std::vector<std::string> faults;
  for (const std::string& fault : study.result.faults)
    if (fault.starts_with(ledger_file) || fault.starts_with(ledger_head_file)) faults.push_back(fault);
  if (!faults.empty()) r.broken = fmt::format("the ledger does not verify: {}", fmt::join(faults, "; "));
  if (study.ledger.empty() && faults.empty()) r.broken = "there is no ledger";
}

void same_machine(const StudyData& study, Rule& r) {
  std::vector<std::string> differ;
  for (const char* key : {"hosts", "processors", "device", "library", "version"})
    if (const auto all = seen(study, key); all.size() > 1)
      differ.push_back(fmt::format("{} {}", key, fmt::join(all, " and ")));
  const auto processors = seen(study, "processors"), devices = seen(study, "device");
  r.told = fmt::format("Device: {}; processor: {}.", fmt::join(devices, ", "), fmt::join(processors, ", "));
  if (!differ.empty())
    r.broken = fmt::format("runs differ in {}: so speed-ups also compare machines", fmt::join(differ, "; "));
  else if (processors.empty())
    r.broken = "no run says which machine it ran on";
  else
    r.told += " This page does not know its year and peak performance.";
}

void whole_data(const StudyData& study, Rule& r) {
  double most = 0;
  bool known = true;
  for (const CellData& c : study.cells)
    if (c.has_finished()) {
      known &= std::isfinite(c.wait_share);
      most = std::max(most, c.wait_share);
    }
  if (!known) r.broken = "some runs do not say how long they waited for data";
  if (known) r.told = fmt::format("Waiting for data takes up to {:.1f} % of the time of a cell.", 100 * most);
  if (study.is_synthetic()) r.told += " The data are synthetic, and every picture is stamped.";
}

void operations(const StudyData& study, Rule& r) {
  if (!study.facts || !(study.facts->forward_flops > 0))
    r.broken = "operations of this model were not counted";
  else
    r.told =
        fmt::format("{:.4g} MFLOP forward and {:.4g} MFLOP for training per sample, in {}.",
                    study.facts->forward_flops / 1e6, 3 * study.facts->forward_flops / 1e6, study.setting("dtype"));
}

void one_configuration(const StudyData& study, Rule& r) {
  std::vector<std::string> out;
  for (const CellData& c : study.cells)
    for (const RunOutcome& run : c.result.runs)
      if (run.status == "invalid" && c.result.weak == (c.cell().scaling == "weak"))
        out.push_back(fmt::format("{} ({})", run.run, run.why));
  if (!out.empty()) r.told = fmt::format("Left out, in speed and accuracy alike: {}.", fmt::join(out, "; "));
}

void input_size(const StudyData& study, Rule& r) {
  if (!study.facts || study.facts->input.empty()) r.broken = "the size of the input was not noted";
}

/// Whether the target was fixed first: every start of a run records the hash of study.toml, which must be the current
/// one.
bool target_was_first(const StudyData& study) {
  const std::string now = study.result.question.asked_by();
  return std::ranges::all_of(study.ledger, [&](const LedgerEntry& e) { return e.status != "started" || e.why == now; });
}

void fixed_target(const StudyData& study, Rule& r) {
  int least = std::numeric_limits<int>::max();
  for (const CellData& c : study.cells) least = std::min(least, c.result.finished);
  std::vector<std::string> why;
  if (!study.has_target()) why.emplace_back("no target was fixed");
  if (study.has_target() && !target_was_first(study))
    why.emplace_back("study.toml is not the one that the runs were started with, by its hash in the ledger");
  if (study.cells.empty() || least < 5)
    why.push_back(least == 1 ? "some cells have a single run"
                             : fmt::format("some cells have {} runs", study.cells.empty() ? 0 : least));
  r.broken = fmt::format("{}", fmt::join(why, "; "));
}

void both_scalings(const StudyData& study, Rule& r) {
  const StudyOptions& o = study.result.question.options;
  if (!o.weak || !o.strong) r.broken = fmt::format("{} scaling was not asked for", o.weak ? "strong" : "weak");
  if (study.families.empty()) r.broken = "there is no cell other than the serial run";
}

/// Most threads of a serial run, from its environment; 0: unknown.
int serial_threads(const StudyData& study) {
  int most = 0;
  for (const CellData& c : study.cells)
    for (const RunData& run : c.runs) {
      int threads = 0;
      if (c.cell().is_serial() && parse_number(told(run.environment, "threads"), threads))
        most = std::max(most, threads);
    }
  return most;
}

void baseline(const StudyData& study, Rule& r) {
  if (!study.serial_by_speed) {
    r.broken = "no serial run has finished with an accuracy: no speed-up is shown";
    return;
  }
  const CellData& serial = study.cells[*study.serial_by_speed];
  r.told = fmt::format("Best serial run by speed: {}.", name_of(serial.cell()));
  if (study.serial_by_time)
    r.told += fmt::format(" By time to target: {}.", name_of(study.cells[*study.serial_by_time].cell()));
  const auto device = study.has_target() && study.device_by_time ? study.device_by_time : study.device_by_speed;
  if (device) r.told += fmt::format(" Best single-device run: {}.", name_of(study.cells[*device].cell()));
  const int threads = serial_threads(study), cores = study.facts ? study.facts->cores : 0;
  if (threads > 0 && threads < cores)
    r.broken = fmt::format("no serial run had more than {} of the machine's {} cores (OMP_NUM_THREADS or the like)",
                           threads, cores);
}

}  // namespace

std::vector<Rule> rules_of(const StudyData& study) {
  constexpr std::pair<const char*, void (*)(const StudyData&, Rule&)> all[] = {
      {"Ignore accuracy when scaling up", accuracy_beside_speed},
      {"Do not report test accuracy", held_out},
      {"Do not report all training runs needed", ledger},
      {"Compare outdated hardware with special-purpose hardware", same_machine},
      {"Show only kernels or subsets when scaling", nullptr},
      {"Do not consider input and output", whole_data},
      {"Report highest operation numbers", operations},
      {"Show speed with one set of options and accuracy with another", one_configuration},
      {"Train on unreasonably large inputs", input_size},
      {"Run training just for the right time", fixed_target},
      {"Choose minibatch sizes for fun and profit", both_scalings},
      {"Select carefully how to compare to the state of the art", baseline}};
  std::vector<Rule> rules;
  for (const auto& [way, apply] : all) {
    rules.push_back({.way = way});
    if (apply) apply(study, rules.back());
  }
  return rules;
}

std::vector<std::string> limits_of(const StudyData& study) {
  std::vector<std::string> limits;
  const auto say = [&](bool holds, const std::string& sentence) {
    if (holds) limits.push_back(sentence);
  };
  const StudyOptions& o = study.result.question.options;
  int least = study.cells.empty() ? 0 : std::numeric_limits<int>::max(), most_ranks = 1;
  double coverage = 1;
  for (const CellData& c : study.cells) {
    least = std::min(least, c.result.finished);
    most_ranks = std::max(most_ranks, c.cell().ranks);
    if (c.has_finished()) coverage = std::min(coverage, c.step.interval.coverage);
  }
  say(least == 0, "Some cells have no finished run.");
  say(least == 1, "Some cells have a single run, so the spread between runs is unknown.");
  say(least > 1 && least < 5, fmt::format("Some cells have {} runs, fewer than five.", least));
  say(coverage < 0.95, fmt::format("Intervals of so few runs go from the least to the most; the narrowest evidence "
                                   "holds the median with {:.1f} %, not 95 %.",
                                   100 * coverage));
  say(true,
      "Intervals of speed-ups are quotients of both medians' intervals; their level is at least the product of both.");
  say(true, "Learning rate, schedule and other settings are the same in all cells, and were not tuned for each.");
  say(o.weak && !o.scale_lr, "Weak scaling keeps the learning rate although the batch grows (--scale_lr is off).");
  const std::string others = others_text(study.result);
  say(!others.empty(), "O" + others.substr(others.empty() ? 0 : 1) +
                           (study.result.most_others > 0.1 ? ": times are longer than on a machine alone." : "."));
  const int cores = study.facts ? study.facts->cores : 0, threads = serial_threads(study);
  const double load = study.facts ? study.facts->load : 0;
  say(cores > 0 && most_ranks > cores,
      fmt::format("Up to {} ranks share {} cores: their speed-ups say what the strategy "
                  "costs, not what {} devices would give.",
                  most_ranks, cores, most_ranks));
  say(cores > 0, fmt::format("Load of the machine before the first run: {:.1f} on {} cores{}.", load, cores,
                             load > 0.5 ? ": others used it, and times are longer than on a machine alone" : ""));
  say(cores == 0, "Cores and load of the machine were not noted: it is not known whether others used it.");
  say(study.setting("parallel.threads") == "0" && (threads == 0 || threads >= cores),
      "A serial run has all cores (parallel.threads is 0): ranks on the same host divide the cores.");
  say(!o.mpi, "Ranks are threads of one process on one host: no network was used.");
  say(!study.reduction().empty(), "Reduced data:" + study.reduction().substr(study.reduction().empty() ? 0 : 1) + ".");
  say(true, fmt::format("One model ({}), one data set ({}), one host; file caches were not cleared between runs.",
                        study.setting("model"), study.setting("data.name")));
  say(true, "No price, power or energy was measured.");
  return limits;
}

}  // namespace trireme
