#include "tools/report/report_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "framework/io/file.h"
#include "tools/report/page.h"
#include "tools/report/rules.h"
#include "tools/study/importance.h"
#include "tools/training/trainer_options.h"

/// Converts these members of a type to those of a JSON object.
#define TRIREME_MEMBERS(Type, ...)                                           \
  static void to_json(Json& nlohmann_json_j, const Type& nlohmann_json_t) {  \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(NLOHMANN_JSON_TO, __VA_ARGS__)) \
  }

namespace trireme {

static void to_json(Json& j, const Median& m) {
  j = {{"value", m.value}, {"low", m.interval.low}, {"high", m.interval.high}, {"level", m.interval.coverage}};
}
TRIREME_MEMBERS(Rule, way, broken, told)
TRIREME_MEMBERS(Family, name, weak, cells, serial_share)
TRIREME_MEMBERS(LedgerEntry, run, status, why)
TRIREME_MEMBERS(LedgerTotals, started, finished, failed, interrupted, device_seconds)
TRIREME_MEMBERS(StudyOptions, ranks, strategies, seeds, strong, weak, scale_lr, mpi, target)
TRIREME_MEMBERS(StudyFacts, train_samples, test_samples, input, train_sha256, test_sha256, shared_samples, not_compared,
                forward_flops, parameters, cores, load)
TRIREME_MEMBERS(StudyCell, scaling, mesh, ranks, config_hash)
TRIREME_MEMBERS(CellResult, weak, finished, failed, after_failure, repeated, others, reached)
TRIREME_MEMBERS(CellData, batch, local_batch, time, accuracy, best, step, epochs, olympic_time, wait_share, withheld,
                step_speedup, time_speedup, device_speedup)
TRIREME_MEMBERS(RunOutcome, seed, run, status, why, attempts, failures, repeats, others, seconds, accuracy, best,
                step_seconds, samples_per_s, to_target, curve)
TRIREME_MEMBERS(TuneOptions, algorithm, trials, epochs, min_epochs, eta, seed, ranks, median_stop, startup)
TRIREME_MEMBERS(Parameter, name, low, high, values)
TRIREME_MEMBERS(TrialReport, trial, epoch, value)
TRIREME_MEMBERS(TrialRow, parent, why, seconds, attempts)
TRIREME_MEMBERS(RunData, name, path, status, environment, budget)

namespace {

constexpr std::size_t most_points = 400, most_points_of_all = 20000;  // of a curve, and of the curves of all runs
constexpr int shown_ranks = 16;                                       // of a traced step

/// Settings, which are TOML, with the types they have in JSON.
Json typed(const std::string& text) {
  const Json value = parse_json(text);
  return value.is_discarded() ? Json(text) : value;
}
Json typed(const std::map<std::string, std::string>& settings) {
  Json all = Json::object();
  for (const auto& [name, text] : settings) all[name] = typed(text);
  return all;
}

/// Curves of at most so many points; each is the mean of neighbours.
Json thinned(const std::map<std::string, Points>& curves, std::size_t most) {
  Json all = Json::object();
  for (const auto& [key, points] : curves) {
    Json& few = all[key] = Json::array();
    const std::size_t count = std::min(most, points.size());
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t begin = i * points.size() / count, end = (i + 1) * points.size() / count;
      double x = 0, y = 0;
      for (std::size_t j = begin; j < end; ++j) {
        x += points[j].first / static_cast<double>(end - begin);
        y += points[j].second / static_cast<double>(end - begin);
      }
      few.push_back({x, y});
    }
  }
  return all;
}

Json json_run(const RunData& run, std::size_t points) {
  Json j = run, last = Json::object();
  for (const auto& [key, curve] : run.test) last[key] = curve.back().second;
  if (const Points* p = find(run.test, "test_top1"))
    last["best_top1"] = std::ranges::max_element(*p, {}, [](const auto& q) { return q.second; })->second;
  const Points* steps = find(run.test, "test_loss") ? find(run.test, "test_loss") : find(run.train, "loss");
  if (steps) last["step"] = steps->back().first;
  int ranks = 0;
  j["traced_step"] = Json::array();
  for (const RunData::Span& s : run.step) {
    ranks = std::max(ranks, s.rank + 1);
    if (s.rank < shown_ranks) j["traced_step"].push_back({s.rank, s.lane, s.name, s.begin, s.end});
  }
  j["traced_ranks"] = ranks;
  j["data"] = data_of(run);
  j["synthetic"] = is_synthetic(run);
  j["last"] = last;
  j["settings"] = typed(run.settings);
  j["curves"] = {{"train", thinned(run.train, points)}, {"test", thinned(run.test, points)}};
  return j;
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
    Json point = median_with_interval(accuracy);
    point["seconds"] = median_of(seconds);
    curve.push_back(point);
  }
  return curve;
}

bool stands_once(const CellData& c) { return c.result.weak == (c.cell().scaling == "weak"); }

Json json_cell(const CellData& c) {
  Json j = c;
  j.update(Json(c.cell()));
  j.update(Json(c.result));
  j.update({{"cell", c.cell().name}, {"strategy", name_of(c.cell())}, {"serial", c.cell().is_serial()}});
  j.update({{"once", stands_once(c)}, {"curve", curve_of(c)}, {"samples_per_s", c.batch / c.step.value}});
  return j;
}

/// A row per run of the cell.
void add_rows(Json& rows, const CellData& c, bool target) {
  auto data = c.runs.begin();
  for (const RunOutcome& r : c.result.runs) {
    Json& j = rows.emplace_back(r);
    j.update({{"cell", c.cell().name}, {"strategy", name_of(c.cell())}, {"batch", c.batch}});
    j.update(Json(c.cell()));
    if (!target) j["to_target"] = nullptr;
    if (r.status == "finished" && data != c.runs.end()) j["environment"] = (data++)->environment;
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
  Json j = t, settings = Json::object(), values = Json::array(), places = Json::array();
  for (const auto& [name, text] : r.question.space.settings(t.point)) settings[name] = typed(text);
  for (const auto& [epoch, score] : t.scores) values.push_back({epoch, r.question.options.sign() * score});
  for (std::size_t p = 0; p < t.point.size(); ++p)  // null: the parameter does not apply
    places.push_back(std::isnan(t.point[p]) ? Json() : Json(r.question.space[p].place(t.point[p])));
  j.update({{"trial", t.id}, {"settings", settings}, {"places", places}, {"values", values}});
  j["status"] = t.status == TrialStatus::paused ? "not promoted" : to_string(t.status);
  j["value"] = t.scores.empty() ? Json() : Json(r.value(t));
  j["epochs"] = t.scores.empty() ? t.from_epoch : t.scores.back().first;
  return j;
}

/// Infinite numbers, which JSON does not have, become texts.
Json finite(Json j) {
  if (j.is_structured())
    for (Json& inner : j) inner = finite(std::move(inner));
  if (j.is_number_float() && std::isinf(j.get<double>())) j = j.get<double>() > 0 ? "inf" : "-inf";
  return j;
}

void flatten(const Json& value, const std::string& name, std::map<std::string, std::string>& row) {
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) flatten(inner, name.empty() ? key : name + "." + key, row);
  } else if (!value.is_array()) {
    std::string text = value.is_string() ? value.get<std::string>() : json_text(value);
    if (value.is_null()) text.clear();
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
  Json j{{"kind", "runs"}, {"rows", Json::array()}, {"warnings", Json::array()}};
  for (RunData& run : runs) {
    if (same[run.name] > 1) run.name = run.path;
    j["rows"].push_back(json_run(run, std::clamp<std::size_t>(most_points_of_all / runs.size(), 100, most_points)));
    for (const std::string& line : run.warnings) j["warnings"].push_back(run.name + ": " + line);
  }
  j["title"] = runs.size() == 1 ? runs[0].name : fmt::format("{} runs", runs.size());
  j["synthetic"] = std::ranges::any_of(runs, is_synthetic);
  j["defaults"] = typed(read_own_toml(to_toml(TrainerOptions{})));
  return finite(j);
}

Json json_of(const StudyData& study) {
  const StudyResult& r = study.result;
  Json j{{"kind", "study"}, {"path", study.path}, {"synthetic", study.is_synthetic()}, {"warnings", r.warnings}};
  for (const std::string& fault : r.faults) j["warnings"].push_back(fault);
  j["title"] = fmt::format("{} on {}: scaling study", study.setting("model"), study.setting("data.name"));
  j["date"] = study.ledger.empty() ? "" : study.ledger.front().time.substr(0, 10);
  j["reduction"] = study.reduction();
  j["question"] = r.question.options;
  j["question"]["first_seed"] = r.question.first_seed;
  j["settings"] = typed(r.question.settings);
  j["facts"] = study.facts ? Json(*study.facts) : Json::object();
  j["cells"] = j["rows"] = j["not_finished"] = Json::array();
  for (const CellData& c : study.cells) {
    j["cells"].push_back(json_cell(c));
    if (stands_once(c)) add_rows(j["rows"], c, study.has_target());
  }
  j["families"] = study.families;
  j["baselines"] = Json::object();
  if (study.serial_by_speed) j["baselines"]["serial_by_speed"] = *study.serial_by_speed;
  if (study.serial_by_time) j["baselines"]["serial_by_time"] = *study.serial_by_time;
  j["ledger"] = r.totals;
  j["ledger"]["head"] = r.ledger_head;
  for (const LedgerEntry& e : study.ledger)
    if (e.status == "failed" || e.status == "interrupted") j["not_finished"].push_back(e);
  for (const LedgerEntry& e : open_runs(study.ledger)) j["not_finished"].push_back(e);
  j["limits"] = limits_of(study);
  j["rules"] = rules_of(study);
  return finite(j);
}

Json json_of(const TuneResult& r) {
  const TuneOptions& o = r.question.options;
  Json j{{"kind", "search"}, {"path", r.directory}, {"synthetic", r.is_synthetic()}, {"warnings", r.faults}};
  j["title"] = "Search of " + told(r.settings, "model");
  if (!r.error.empty()) j["warnings"].push_back(r.error);
  if (!r.trials_asked.empty()) j["warnings"].push_back("trials asked for: " + r.trials_asked);
  j["settings"] = typed(r.settings);
  j["question"] = o;
  j["question"]["objective"] = o.key();
  j["question"]["lower_is_better"] = o.sign() < 0;
  j["question"]["parameters"] = r.question.space.parameters();
  j["question"]["left_out"] = left_out_of_grid(r.question);
  j["question"]["toml"] = to_toml(r.question);
  j["rows"] = Json::array();
  for (const int i : r.order) j["rows"].push_back(json_trial(r, r.trials[static_cast<std::size_t>(i)]));
  j["reports"] = r.reports;
  j["about_best"] = r.about_best();
  j["best"] = r.best() ? Json(r.best()->id) : Json();
  j["importance"] = json_importance(r);
  j["ledger"] = r.totals;
  j["ledger"]["head"] = r.ledger_head;
  return finite(j);
}

std::string report_page(const Json& document) {
  std::string text, page = page_html;
  for (const char c : json_text(document, NotUtf8::replaced))  // HTML and XML find no tag and no entity
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
  for (const std::string& name : columns) text += (text.empty() ? "" : ",") + name;
  for (auto& row : rows)
    for (const std::string& name : columns) text += (&name == columns.data() ? "\n" : ",") + row[name];
  text += "\n";
  return text;
}

void write_report(const Json& document, const std::string& to) {
  const std::string kind = std::filesystem::path(to).extension();
  check(kind.empty() || kind == ".html" || kind == ".htm" || kind == ".json" || kind == ".csv", "report",
        "--out {} ends in '{}'; give a name that ends in .html, .json or .csv", to, kind);
  replace_file(to, kind == ".json"  ? json_text(document, NotUtf8::replaced) + "\n"
                   : kind == ".csv" ? report_csv(document)
                                    : report_page(document));
}

}  // namespace trireme
