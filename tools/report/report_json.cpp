#include "tools/report/report_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "framework/io/file.h"
#include "tools/report/page.h"
#include "tools/report/rules.h"
#include "tools/training/trainer_options.h"
#include "tools/tune/importance.h"

namespace trireme {
namespace {

constexpr std::size_t most_points = 400, most_points_of_all = 20000;  // of a curve, and of the curves of all runs
constexpr int shown_ranks = 16;                                       // of a traced step

Json json_number(double v) { return std::isinf(v) ? Json(v > 0 ? "inf" : "-inf") : Json(v); }

Json json_median(const Median& m) {
  return {{"value", json_number(m.value)},
          {"low", json_number(m.interval.low)},
          {"high", json_number(m.interval.high)},
          {"level", m.interval.coverage}};
}

/// Settings, which are TOML, with the types they have in JSON.
Json json_settings(const std::map<std::string, std::string>& settings) {
  Json all = Json::object();
  for (const auto& [name, text] : settings) {
    const Json value = parse_json(text);
    all[name] = value.is_discarded() ? Json(text) : value;
  }
  return all;
}

Json json_curve(const Points& points, std::size_t most) {
  if (points.size() <= most) return points;
  Json few = Json::array();
  for (std::size_t i = 0; i < most; ++i) {  // means of neighbours
    const std::size_t begin = i * points.size() / most, end = (i + 1) * points.size() / most;
    double x = 0, y = 0;
    for (std::size_t j = begin; j < end; ++j) {
      x += points[j].first;
      y += points[j].second;
    }
    few.push_back({x / static_cast<double>(end - begin), y / static_cast<double>(end - begin)});
  }
  return few;
}

Json json_totals(const LedgerTotals& t, const std::string& head) {
  return {{"started", t.started},
          {"finished", t.finished},
          {"failed", t.failed},
          {"interrupted", t.interrupted},
          {"device_seconds", t.device_seconds},
          {"head", head}};
}

Json json_run(const RunData& run, std::size_t points) {
  Json last = Json::object(), curves{{"train", Json::object()}, {"test", Json::object()}}, step = Json::array();
  for (const auto& [key, curve] : run.train) curves["train"][key] = json_curve(curve, points);
  for (const auto& [key, curve] : run.test) {
    curves["test"][key] = json_curve(curve, points);
    last[key] = curve.back().second;
  }
  if (const Points* p = find(run.test, "test_top1"))
    last["best_top1"] = std::ranges::max_element(*p, {}, [](const auto& q) { return q.second; })->second;
  const Points* steps = find(run.test, "test_loss") ? find(run.test, "test_loss") : find(run.train, "loss");
  if (steps) last["step"] = steps->back().first;
  int ranks = 0;
  for (const RunData::Span& s : run.step) {
    ranks = std::max(ranks, s.rank + 1);
    if (s.rank < shown_ranks) step.push_back({s.rank, s.lane, s.name, s.begin, s.end});
  }
  return {{"name", run.name},
          {"path", run.path},
          {"status", run.status},
          {"data", data_of(run)},
          {"synthetic", is_synthetic(run)},
          {"last", last},
          {"settings", json_settings(run.settings)},
          {"environment", run.environment},
          {"curves", curves},
          {"budget", run.budget},
          {"traced_ranks", ranks},
          {"traced_step", step}};
}

/// Median over seeds of seconds and accuracy, at each evaluation that all finished runs have.
Json curve_of(const CellData& c) {
  std::size_t least = c.has_finished() ? std::numeric_limits<std::size_t>::max() : 0;
  Json curve = Json::array();
  for (const RunOutcome& run : c.result.runs)
    if (run.status == "finished") least = std::min(least, run.curve.size());
  for (std::size_t e = 0; e < least; ++e) {
    std::vector<double> seconds, accuracy;
    for (const RunOutcome& run : c.result.runs)
      if (run.status == "finished") {
        seconds.push_back(run.curve[e].first);
        accuracy.push_back(run.curve[e].second);
      }
    Json point = json_median(median_with_interval(accuracy));
    point["seconds"] = median_of(seconds);
    curve.push_back(point);
  }
  return curve;
}

bool stands_once(const CellData& c) { return c.result.weak == (c.cell().scaling == "weak"); }

Json json_cell(const CellData& c) {
  return {{"cell", c.cell().name},
          {"strategy", name_of(c.cell())},
          {"scaling", c.cell().is_serial() ? "both"
                      : c.result.weak      ? "weak"
                                           : "strong"},
          {"weak", c.result.weak},
          {"once", stands_once(c)},
          {"serial", c.cell().is_serial()},
          {"ranks", c.cell().ranks},
          {"batch", c.batch},
          {"local_batch", c.local_batch},
          {"config_hash", c.cell().config_hash},
          {"finished", c.result.finished},
          {"failed", c.result.failed},
          {"after_failure", c.result.after_failure},
          {"reached", c.result.reached},
          {"withheld", c.withheld},
          {"wait_share", c.wait_share},
          {"olympic_time", json_number(c.olympic_time)},
          {"time", json_median(c.time)},
          {"accuracy", json_median(c.accuracy)},
          {"best", json_median(c.best)},
          {"step_seconds", json_median(c.step)},
          {"samples_per_s", static_cast<double>(c.batch) / c.step.value},
          {"epochs", json_median(c.epochs)},
          {"step_speedup", json_median(c.step_speedup)},
          {"time_speedup", json_median(c.time_speedup)},
          {"device_speedup", json_median(c.device_speedup)},
          {"curve", curve_of(c)}};
}

/// A row per run of the cell.
void add_rows(Json& rows, const CellData& c, bool target) {
  auto data = c.runs.begin();
  for (const RunOutcome& r : c.result.runs) {
    Json row{{"run", r.run},
             {"cell", c.cell().name},
             {"strategy", name_of(c.cell())},
             {"scaling", c.cell().scaling},
             {"mesh", c.cell().mesh},
             {"ranks", c.cell().ranks},
             {"batch", c.batch},
             {"seed", r.seed},
             {"status", r.status},
             {"why", r.why},
             {"attempts", r.attempts},
             {"failures", r.failures},
             {"seconds", r.seconds},
             {"accuracy", r.accuracy},
             {"best", r.best},
             {"step_seconds", r.step_seconds},
             {"samples_per_s", r.samples_per_s},
             {"to_target", target ? json_number(r.to_target) : Json()},
             {"curve", r.curve}};
    if (r.status == "finished" && data != c.runs.end()) row["environment"] = (data++)->environment;
    rows.push_back(row);
  }
}

/// Importance by the values at the epoch that most trials have reached.
Json json_importance(const TuneResult& r) {
  std::map<std::int64_t, std::size_t> have;
  for (const TrialRow& t : r.trials)
    for (const auto& [epoch, score] : t.scores) ++have[epoch];
  std::int64_t epoch = 0;
  for (const auto& [at, count] : have)
    if (epoch == 0 || count >= have[epoch]) epoch = at;
  std::vector<std::vector<double>> rows;
  std::vector<double> scores;
  for (const TrialRow& t : r.trials)
    if (const auto at = std::ranges::find(t.scores, epoch, &std::pair<std::int64_t, double>::first);
        at != t.scores.end()) {
      rows.push_back(r.question.space.places(t.point));
      scores.push_back(at->second);
    }
  return {{"epoch", epoch}, {"trials", rows.size()}, {"shares", importance(rows, scores)}};
}

Json json_trial(const TuneResult& r, const TrialRow& t) {
  Json settings = Json::object(), values = Json::array(), places = Json::array();
  for (const auto& [name, text] : r.question.space.settings(t.point)) {
    const Json value = parse_json(text);
    settings[name] = value.is_discarded() ? Json(text) : value;
  }
  for (const auto& [epoch, score] : t.scores) values.push_back({epoch, r.question.options.sign() * score});
  for (std::size_t p = 0; p < t.point.size(); ++p)  // null: the parameter does not apply
    places.push_back(std::isnan(t.point[p]) ? Json() : Json(r.question.space[p].place(t.point[p])));
  return {{"trial", t.id},
          {"parent", t.parent},
          {"status", t.status == TrialStatus::paused ? "not promoted" : to_string(t.status)},
          {"why", t.why},
          {"value", t.scores.empty() ? Json() : Json(r.value(t))},
          {"epochs", t.scores.empty() ? t.from_epoch : t.scores.back().first},
          {"seconds", t.seconds},
          {"attempts", t.attempts},
          {"settings", settings},
          {"places", places},
          {"values", values}};
}

void flatten(const Json& value, const std::string& name, std::map<std::string, std::string>& row) {
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) flatten(inner, name.empty() ? key : name + "." + key, row);
  } else if (!value.is_array()) {
    std::string text = value.is_null()     ? ""
                       : value.is_string() ? value.get<std::string>()
                                           : json_text(value, NotUtf8::replaced);
    if (text.find_first_of(",\"\r\n") != text.npos) {
      for (std::size_t at = 0; (at = text.find('"', at)) != text.npos; at += 2) text.insert(at, 1, '"');
      text = '"' + text + '"';
    }
    row[name] = text;
  }
}

}  // namespace

Json json_of(std::vector<RunData> runs) {
  std::map<std::string, int> same;  // runs with equal names are shown with their paths
  for (const RunData& run : runs) ++same[run.name];
  Json rows = Json::array(), warnings = Json::array();
  for (RunData& run : runs) {
    if (same[run.name] > 1) run.name = run.path;
    rows.push_back(json_run(run, std::clamp<std::size_t>(most_points_of_all / runs.size(), 100, most_points)));
    for (const std::string& line : run.warnings) warnings.push_back(run.name + ": " + line);
  }
  return {{"kind", "runs"},
          {"title", runs.size() == 1 ? runs[0].name : fmt::format("{} runs", runs.size())},
          {"synthetic", std::ranges::any_of(runs, is_synthetic)},
          {"warnings", warnings},
          {"defaults", json_settings(read_own_toml(to_toml(TrainerOptions{})))},
          {"rows", rows}};
}

Json json_of(const StudyData& study) {
  const StudyOptions& o = study.result.question.options;
  Json rows = Json::array(), cells = Json::array(), families = Json::array(), ends = Json::array(),
       rules = Json::array(), best = Json::object(), facts = Json::object();
  for (const CellData& c : study.cells) {
    cells.push_back(json_cell(c));
    if (stands_once(c)) add_rows(rows, c, study.has_target());
  }
  for (const Family& f : study.families)
    families.push_back(
        {{"name", f.name}, {"weak", f.weak}, {"cells", f.cells}, {"serial_share", json_median(f.serial_share)}});
  for (const LedgerEntry& e : study.ledger)
    if (e.status == "failed" || e.status == "interrupted")
      ends.push_back({{"run", e.run}, {"status", e.status}, {"why", e.why}});
  for (const LedgerEntry& e : open_runs(study.ledger))
    ends.push_back({{"run", e.run}, {"status", "no end recorded"}, {"why", "it is running, or was killed"}});
  for (const Rule& r : rules_of(study))
    rules.push_back({{"way", r.way}, {"measure", r.measure}, {"broken", r.broken}, {"told", r.told}});
  for (const auto& [name, index] : {std::pair("serial_by_speed", study.serial_by_speed),
                                    {"serial_by_time", study.serial_by_time},
                                    {"device_by_speed", study.device_by_speed},
                                    {"device_by_time", study.device_by_time}})
    best[name] = index ? Json(*index) : Json();
  if (study.facts)
    facts = {{"train_samples", study.facts->train_samples},
             {"test_samples", study.facts->test_samples},
             {"input", study.facts->input},
             {"parameters", study.facts->parameters},
             {"forward_flops", study.facts->forward_flops},
             {"shared_samples", study.facts->shared_samples},
             {"cores", study.facts->cores},
             {"load", study.facts->load}};
  return {{"kind", "study"},
          {"title", fmt::format("{} on {}: scaling study", study.setting("model"), study.setting("data.name"))},
          {"path", study.path},
          {"synthetic", study.is_synthetic()},
          {"warnings", study.result.faults},
          {"date", study.ledger.empty() ? "" : study.ledger.front().time.substr(0, 10)},
          {"reduction", study.reduction()},
          {"question",
           {{"ranks", o.ranks},
            {"strategies", o.strategies},
            {"seeds", o.seeds},
            {"first_seed", study.result.question.first_seed},
            {"strong", o.strong},
            {"weak", o.weak},
            {"scale_lr", o.scale_lr},
            {"mpi", o.mpi},
            {"target", o.target}}},
          {"settings", json_settings(study.result.question.settings)},
          {"facts", facts},
          {"cells", cells},
          {"rows", rows},
          {"families", families},
          {"baselines", best},
          {"ledger", json_totals(study.result.totals, study.result.ledger_head)},
          {"not_finished", ends},
          {"limits", limits_of(study)},
          {"rules", rules}};
}

Json json_of(const TuneResult& r) {
  const TuneOptions& o = r.question.options;
  Json rows = Json::array(), parameters = Json::array(), reports = Json::array(), warnings = r.faults;
  for (const int i : r.order) rows.push_back(json_trial(r, r.trials[static_cast<std::size_t>(i)]));
  for (const Parameter& p : r.question.space.parameters())
    parameters.push_back({{"name", p.name},
                          {"low", p.low},
                          {"high", p.high},
                          {"log", p.is_log()},
                          {"whole", p.is_whole()},
                          {"choices", p.values}});
  for (const TrialReport& t : r.reports) reports.push_back({t.trial, t.epoch, t.value});
  if (!r.error.empty()) warnings.push_back(r.error);
  return {{"kind", "search"},
          {"title", "Search of " + told(r.settings, "model")},
          {"path", r.directory},
          {"synthetic", r.is_synthetic()},
          {"warnings", warnings},
          {"settings", json_settings(r.settings)},
          {"objective", o.key()},
          {"lower_is_better", o.sign() < 0},
          {"algorithm", o.algorithm},
          {"seed", o.seed},
          {"trials_wanted", std::max<std::int64_t>(o.trials, std::ssize(r.trials))},
          {"epochs", o.epochs},
          {"left_out", left_out_of_grid(r.question)},
          {"question", to_toml(r.question)},
          {"parameters", parameters},
          {"rows", rows},
          {"reports", reports},
          {"best", r.best() ? Json(r.best()->id) : Json()},
          {"importance", json_importance(r)},
          {"ledger", json_totals(r.totals, r.ledger_head)}};
}

std::string report_page(const Json& document) {
  std::string text, page = page_html;
  for (const char c :
       json_text(document, NotUtf8::replaced))  // no tag and no entity, so that HTML and XML read it alike
    text += c == '<' ? "\\u003c" : c == '>' ? "\\u003e" : c == '&' ? "\\u0026" : std::string(1, c);
  const std::string_view place = "\"DATA\"";
  return page.replace(page.find(place), place.size(), text);
}

std::string report_csv(const Json& document) {
  std::vector<std::string> columns{"name",  "run",   "trial", "cell",   "strategy", "scaling", "mesh",
                                   "ranks", "batch", "seed",  "status", "why",      "value"};
  std::vector<std::map<std::string, std::string>> rows;
  std::set<std::string> others;
  for (const Json& row : document["rows"]) {
    flatten(row, "", rows.emplace_back());
    for (const auto& [name, text] : rows.back()) others.insert(name);
  }
  std::erase_if(columns, [&](const std::string& name) { return others.erase(name) == 0; });
  columns.insert(columns.end(), others.begin(), others.end());
  std::string text;
  const auto line = [&](const std::function<std::string(const std::string&)>& cell) {
    for (const std::string& name : columns) text += (&name == columns.data() ? "" : ",") + cell(name);
    text += "\n";
  };
  line([](const std::string& name) { return name; });
  for (auto& row : rows) line([&](const std::string& name) { return row[name]; });
  return text;
}

void write_report(const Json& document, const std::string& to) {
  const std::string kind = std::filesystem::path(to).extension();
  check(kind.empty() || kind == ".html" || kind == ".htm" || kind == ".json" || kind == ".csv", "report",
        "--out {} ends in '{}'; give a name that ends in .html, .json or .csv", to, kind);
  replace_file(to, kind == ".json"  ? json_text(document, NotUtf8::replaced, 1) + "\n"
                   : kind == ".csv" ? report_csv(document)
                                    : report_page(document));
}

}  // namespace trireme
