#include "tools/study/tune_result.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>

#include "framework/io/json.h"
#include "framework/io/lines.h"
#include "kernels/core/text.h"
#include "tools/study/worker.h"

namespace trireme {
namespace {

std::string value_text(const TuneResult& r, const TrialRow& t) {
  return t.scores.empty() ? "-" : fmt::format("{:.6g}", r.value(t));
}

/// The best evaluation, with its epoch.
std::string best_text(const TuneResult& r, const TrialRow& t) {
  if (t.scores.empty()) return "-";
  const auto best = std::ranges::max_element(t.scores, {}, &std::pair<std::int64_t, double>::second);
  return fmt::format("{:.6g} ({})", r.question.options.sign() * best->second, best->first);
}

}  // namespace

namespace {

/// Differences between study.db, the ledger, and the trials' files.
std::vector<std::string> contradictions(const TuneResult& r, StudyStore& store,
                                        const std::vector<LedgerEntry>& ledger) {
  std::vector<std::string> found = differences(store, ledger, r.count(TrialStatus::running) > 0);
  const auto say = [&](const std::string& what) { found.push_back(what); };
  const std::string asked = store.asked_by();
  std::map<std::string, const LedgerEntry*> last;  // line of each trial
  int others = 0;
  for (const LedgerEntry& e : ledger) {
    last[e.run] = &e;
    others += e.status == "started" && !e.why.ends_with(asked);
  }
  if (others > 0) say(fmt::format("{} trials were started with another question or other settings", others));
  for (const auto& [run, line] : last)
    if (line->status != "started" && !line->results.empty() && line->results != results_hash(r.directory + "/" + run))
      say(fmt::format("{}: its files were changed or removed after it ended", run));
  const std::string trials = r.directory + "/trials";
  if (std::filesystem::is_directory(trials))
    for (const auto& entry : std::filesystem::directory_iterator(trials)) {
      std::int64_t number = 0;
      if (parse_number(entry.path().filename().string(), number) && number > std::ssize(r.trials))
        say(fmt::format("trials/{} is of no trial of {}", entry.path().filename().string(), store_file));
    }
  std::map<int, ReportedValues> written;
  for (const TrialReport& report : r.reports) {
    const auto [at, fresh] = written.try_emplace(report.trial);
    if (fresh)
      at->second = read_values(trial_directory(r.directory, report.trial) + "/metrics.jsonl", r.question.options.key());
    const auto value = std::ranges::find(at->second.values, report.epoch, &std::pair<std::int64_t, double>::first);
    if (value == at->second.values.end() ||
        report.epoch > r.trials.at(static_cast<std::size_t>(report.trial - 1)).target)
      say(fmt::format("trial {}, epoch {}: {} has {:.6g}, which its training did not report", report.trial,
                      report.epoch, store_file, report.value));
    else if (value->second != report.value)
      say(fmt::format("trial {}, epoch {}: {} has {:.6g}, metrics.jsonl {:.6g}", report.trial, report.epoch, store_file,
                      report.value, value->second));
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace

const TrialRow* TuneResult::best() const {
  if (order.empty() || trials[static_cast<std::size_t>(order[0])].scores.empty()) return nullptr;
  return &trials[static_cast<std::size_t>(order[0])];
}

std::string TuneResult::about_best() const {
  if (!question.options.key().starts_with("val_"))
    return "chosen by this value, which is optimistic: use data.validation_split to keep the test set out of the "
           "choice";
  std::string numbers;
  each_line(trial_directory(directory, best()->id) + "/metrics.jsonl", [&](std::string_view line) {
    const Json json = parse_json(line);
    if (value_or<std::string>(json, "kind", "") != "test") return;
    for (const char* key : {"test_top1", "test_loss", "test_dice", "test_perplexity"})
      if (json.contains(key) && json[key].is_number())
        numbers += fmt::format(" {} {:.6g}", key, json[key].get<double>());
  });
  return "chosen by this value, which is optimistic; " +
         (numbers.empty() ? "it has not trained all epochs, so the test set was not used"
                          : "on the test set, which chose nothing:" + numbers);
}

int TuneResult::count(TrialStatus status) const {
  return static_cast<int>(std::ranges::count(trials, status, &TrialRow::status));
}

bool TuneResult::is_synthetic() const {
  const auto at = settings.find("data.name");
  return at != settings.end() && at->second == "\"synthetic\"";
}

TuneResult tune_result(const std::string& directory) {
  StudyStore store(directory);
  TuneResult r{.directory = directory, .question = store.question()};
  r.settings = read_own_toml(store.settings());
  r.trials = store.trials();
  r.reports = store.reports();
  r.error = store.error();
  r.trials_asked = store.trials_asked();
  r.order.resize(r.trials.size());
  std::iota(r.order.begin(), r.order.end(), 0);
  std::ranges::stable_sort(r.order, std::greater(), [&](int i) {
    const TrialRow& t = r.trials[static_cast<std::size_t>(i)];
    return t.status == TrialStatus::failed ? TrialState::worst : t.last();
  });
  const LedgerReader ledger(directory);
  r.totals = totals_of(ledger.entries());
  r.faults = ledger.faults();
  r.ledger_head = ledger.head();
  if (r.faults.empty()) r.faults = contradictions(r, store, ledger.entries());
  return r;
}

std::string table_of(const TuneResult& r, int most) {
  const TuneOptions& o = r.question.options;
  std::string out;
  if (r.is_synthetic()) out += "SYNTHETIC DATA: these values do not measure a model's quality\n";
  out += fmt::format("{:>6} {:>12} {:>16} {:>7} {:>9} {:>9}  {}\n", "trial", o.key(), "best (epoch)", "epochs",
                     "seconds", "", "settings");
  for (int i = 0; i < std::min<int>(most, static_cast<int>(r.order.size())); ++i) {
    const TrialRow& t = r.trials[static_cast<std::size_t>(r.order[static_cast<std::size_t>(i)])];
    const std::string status = t.status == TrialStatus::paused ? "not on" : to_string(t.status);
    out += fmt::format("{:>6} {:>12} {:>16} {:>7} {:>9.1f} {:>9}  {}{}\n", t.id, value_text(r, t), best_text(r, t),
                       t.scores.empty() ? t.from_epoch : t.scores.back().first, t.seconds, status,
                       r.question.space.text(t.point),
                       t.parent > 0 ? fmt::format(" (from trial {})", t.parent) : std::string());
  }
  if (std::ssize(r.order) > most) out += fmt::format("... and {} more\n", std::ssize(r.order) - most);
  out += fmt::format(
      "\n{} of {} trials, {} epochs in all, {:.4g} device-seconds in {} processes: {} finished, {} stopped, {} not "
      "promoted, {} failed{}\n",
      r.trials.size(), std::max<std::int64_t>(o.trials, std::ssize(r.trials)), r.reports.size(),
      r.totals.device_seconds, r.totals.started, r.count(TrialStatus::finished), r.count(TrialStatus::stopped),
      r.count(TrialStatus::paused), r.count(TrialStatus::failed),
      r.count(TrialStatus::running) + r.count(TrialStatus::waiting) > 0
          ? fmt::format(", {} go on", r.count(TrialStatus::running) + r.count(TrialStatus::waiting))
          : std::string());
  if (!r.trials_asked.empty()) out += fmt::format("trials asked for: {}\n", r.trials_asked);
  if (const std::string left = left_out_of_grid(r.question); !left.empty()) out += left + "\n";
  if (const TrialRow* best = r.best()) {
    std::string words;
    for (const auto& [name, value] : r.question.space.settings(best->point))
      words += fmt::format(" --{} {}", name, value);
    out += fmt::format("best: trial {}, {} {}: {}\n", best->id, o.key(), value_text(r, *best), r.about_best());
    out += fmt::format("its settings:{}\n", words);
    out += fmt::format("its weights: {}\n", trial_directory(r.directory, best->id));
  }
  for (const std::string& fault : r.faults) out += "ledger: " + fault + "\n";
  return out;
}

}  // namespace trireme
