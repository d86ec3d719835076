#include "tools/report/study_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>

#include "kernels/core/text.h"
#include "parallel/comm/world/rank_grid.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

void fill_batches(CellData& c, const StudyData& study) {
  if (!parse_number(study.setting("data.batch"), c.batch)) c.batch = 0;
  if (c.cell().scaling == "weak") c.batch *= c.cell().ranks;
  for (const RunData& run : c.runs) parse_number(told(run.settings, "data.batch"), c.batch);
  int along = c.cell().ranks;
  if (!c.cell().mesh.empty()) try {
      along = size_along(parse_mesh(c.cell().mesh), "data");
    } catch (const Error&) { along = 1; }
  c.local_batch = c.batch / std::max(1, along);
}

/// Epochs until the first evaluation that reaches the target.
double epochs_to(const RunData& run, double target) {
  const Points* accuracy = find(run.test, "test_top1");
  const Points* epoch = find(run.test, "epoch");
  if (!accuracy || !epoch) return unknown;
  for (const auto& [step, percent] : *accuracy)
    if (percent >= target)
      for (const auto& [at, number] : *epoch)
        if (at == step) return number;
  return never;
}

CellData cell_data(const StudyData& study, const CellResult& result) {
  CellData c{.result = result};
  std::vector<double> times, accuracies, bests, steps, epochs, waits;
  for (const RunOutcome& run : result.runs) {
    if (run.status == "failed") {
      times.push_back(never);
      epochs.push_back(never);
    }
    if (run.status != "finished") continue;
    RunData& data = c.runs.emplace_back(read_run(study.path + "/" + run.run));
    data.name = fmt::format("{}, seed {}", name_of(c.cell()), run.seed);
    accuracies.push_back(run.accuracy);
    bests.push_back(run.best);
    steps.push_back(run.step_seconds);
    waits.push_back(last_of(data, "wait_share"));
    times.push_back(run.to_target);
    if (study.has_target()) epochs.push_back(epochs_to(data, study.result.question.options.target));
    if (!std::isnan(run.step_seconds) && std::isnan(run.accuracy) && c.withheld.empty())
      c.withheld = fmt::format("{} has no accuracy on the held-out set", run.run);
  }
  if (study.has_target()) {
    c.time = median_with_interval(times);
    c.epochs = median_with_interval(epochs);
  }
  if (study.has_target()) c.olympic_time = olympic_mean(times);
  c.accuracy = median_with_interval(accuracies);
  c.best = median_with_interval(bests);
  c.step = median_with_interval(steps);
  c.wait_share = median_with_interval(waits).value;
  if (c.has_finished() && c.withheld.empty() && std::isnan(c.accuracy.value))
    c.withheld = "it has no accuracy on the held-out set";
  fill_batches(c, study);
  return c;
}

/// Seconds per sample, which is comparable between cells of different batches.
Median per_sample(const CellData& c) {
  const auto batch = static_cast<double>(c.batch);
  return {c.step.value / batch, {c.step.interval.low / batch, c.step.interval.high / batch, c.step.interval.coverage}};
}

/// The best of the cells for which `may` is true. NaN is never the best.
std::optional<std::size_t> best_of(const StudyData& study, const std::function<bool(const CellData&)>& may,
                                   const std::function<double(const CellData&)>& value) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < study.cells.size(); ++i)
    if (const double v = value(study.cells[i]); may(study.cells[i]) && std::isfinite(v))
      if (!best || v < value(study.cells[*best])) best = i;
  return best;
}

/// "pipe=2,data=4" and "pipe=2,data=1" belong to one family.
std::string family_of(const StudyCell& cell) {
  std::string mesh;
  for (const char c : cell.mesh)
    if (!std::isdigit(static_cast<unsigned char>(c)))
      mesh += c;
    else if (mesh.empty() || mesh.back() != 'N')
      mesh += 'N';
  StudyCell any = cell;
  any.mesh = mesh;
  any.ranks = 2;
  return name_of(any);
}

void find_families(StudyData& study) {
  std::map<std::pair<bool, std::string>, std::size_t> known;
  for (std::size_t i = 0; i < study.cells.size(); ++i) {
    const StudyCell& cell = study.cells[i].cell();
    if (cell.is_serial()) continue;
    std::string name = family_of(cell);
    const bool weak = study.cells[i].result.weak;
    const auto holds = [&](const std::string& n) {
      const auto at = known.find({weak, n});
      return at != known.end() && std::ranges::any_of(study.families[at->second].cells, [&](std::size_t c) {
               return study.cells[c].cell().ranks == cell.ranks;
             });
    };
    if (holds(name)) name = name_of(cell);
    const auto [at, is_new] = known.try_emplace({weak, name}, study.families.size());
    if (is_new) study.families.push_back({.name = name, .weak = weak});
    study.families[at->second].cells.push_back(i);
  }
  for (Family& f : study.families)
    std::ranges::stable_sort(f.cells, {}, [&](std::size_t c) { return study.cells[c].cell().ranks; });
}

/// Withholds all speed-ups of a family if a cell of it has no accuracy.
void withhold(StudyData& study) {
  const auto say = [](CellData& c, const std::string& why) {
    if (c.withheld.empty()) c.withheld = why;
  };
  std::string base;
  for (const CellData& c : study.cells)
    if (c.cell().is_serial() && base.empty()) base = c.withheld;
  for (const Family& f : study.families) {
    std::string why;
    for (const std::size_t i : f.cells)
      if (why.empty()) why = study.cells[i].withheld;
    for (const std::size_t i : f.cells)
      if (!why.empty()) say(study.cells[i], why);
  }
  for (CellData& c : study.cells) {
    if (!base.empty()) say(c, base + ", which is the baseline");
    if (!study.serial_by_speed) say(c, "no serial run, the baseline, has finished");
  }
}

void find_baselines(StudyData& study) {
  const auto rate = [](const CellData& c) { return per_sample(c).value; };
  const auto time = [](const CellData& c) { return c.time.value; };
  const auto serial = [](const CellData& c) { return c.cell().is_serial() && c.withheld.empty(); };
  const auto single = [](const CellData& c) { return c.cell().ranks == 1 && c.withheld.empty(); };
  study.serial_by_speed = best_of(study, serial, rate);
  study.serial_by_time = best_of(study, serial, time);
  study.device_by_speed = best_of(study, single, rate);
  study.device_by_time = best_of(study, single, time);
}

void compare(StudyData& study) {
  const auto at = [&](std::optional<std::size_t> i) { return i ? &study.cells[*i] : nullptr; };
  const CellData *fast = at(study.serial_by_speed), *first = at(study.serial_by_time);
  const CellData *device = at(study.device_by_speed), *device_first = at(study.device_by_time);
  const Median one{1, {1, 1, 1}};  // the baseline over itself
  const auto over = [&](const CellData* base, const CellData& c, const Median& there, const Median& here) {
    return base->cell().name == c.cell().name && std::isfinite(here.value) ? one : ratio(there, here);
  };
  for (CellData& c : study.cells) {
    if (!c.withheld.empty()) continue;
    if (fast) c.step_speedup = over(fast, c, per_sample(*fast), per_sample(c));
    if (first) c.time_speedup = over(first, c, first->time, c.time);
    if (study.has_target() && device_first) c.device_speedup = over(device_first, c, device_first->time, c.time);
    if (!study.has_target() && device) c.device_speedup = over(device, c, per_sample(*device), per_sample(c));
  }
}

/// Least squares of one line through (1, 1) to the cells' speed-ups; `of` selects median, low or high end. NaN if a
/// median is below 1: then no law of a serial share describes the cells.
double share_of(const StudyData& study, const Family& f, const std::function<double(const Median&)>& of) {
  double top = 0, bottom = 0;
  for (const std::size_t i : f.cells) {
    const double p = study.cells[i].cell().ranks, s = of(study.cells[i].step_speedup);
    if (study.cells[i].step_speedup.value < 1) return unknown;
    if (p < 2 || !(s > 0) || std::isinf(s)) continue;
    const double y = f.weak ? p - s : 1 / s - 1 / p, x = f.weak ? p - 1 : 1 - 1 / p;
    top += y * x;
    bottom += x * x;
  }
  return bottom > 0 ? top / bottom : unknown;
}

}  // namespace

Median median_with_interval(const std::vector<double>& given) {
  std::vector<double> x = given;
  std::erase_if(x, [](double v) { return std::isnan(v); });
  return {median_of(x), median_interval(x)};
}

Median ratio(const Median& base, const Median& x) {
  if (!std::isfinite(base.value) || !std::isfinite(x.value) || x.value <= 0) return {};
  const double high =
      std::isfinite(base.interval.high) && x.interval.low > 0 ? base.interval.high / x.interval.low : never;
  return {base.value / x.value,
          {std::isfinite(x.interval.high) ? base.interval.low / x.interval.high : 0, high,
           base.interval.coverage * x.interval.coverage}};
}

std::string StudyData::setting(const std::string& key) const { return told(result.question.settings, key); }

std::string StudyData::reduction() const {
  const std::string limit = setting("data.limit");
  return limit == "0" || limit == "–" ? "" : ", the first " + limit + " training samples only";
}

std::string name_of(const StudyCell& cell) {
  if (cell.is_serial()) return cell.name;
  const std::string strategy = cell.strategy.empty() ? "data_parallel" : cell.strategy;
  return cell.mesh.empty() ? strategy : strategy + ", " + cell.mesh;
}

StudyData read_study_data(const std::string& directory) {
  StudyData study{.path = directory, .result = study_result(directory)};
  study.name = fs::path(fs::absolute(directory)).lexically_normal().filename().string();
  if (study.name.empty())
    study.name = fs::path(fs::absolute(directory)).lexically_normal().parent_path().filename().string();
  study.ledger = LedgerReader(directory).entries();
  study.facts = read_facts(directory);
  for (const CellResult& cell : study.result.cells) study.cells.push_back(cell_data(study, cell));
  study.result.cells.clear();
  std::ranges::stable_sort(study.cells, {},
                           [](const CellData& c) { return std::pair(c.result.weak, !c.cell().is_serial()); });
  find_families(study);
  find_baselines(study);
  withhold(study);
  compare(study);
  for (Family& f : study.families) {
    const double share = share_of(study, f, [](const Median& m) { return m.value; });
    if (!(share >= 0 && share <= 1)) continue;  // no share fits
    f.serial_share = {share,
                      {std::clamp(share_of(study, f, [](const Median& m) { return m.interval.high; }), 0.0, 1.0),
                       std::clamp(share_of(study, f, [](const Median& m) { return m.interval.low; }), 0.0, 1.0), 0}};
  }
  return study;
}

}  // namespace trireme
