#include "tools/study/question.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "framework/metrics/metrics.h"
#include "kernels/core/suggest.h"
#include "kernels/core/text.h"
#include "tools/study/asha.h"
#include "tools/study/grid.h"
#include "tools/study/sobol.h"
#include "tools/training/from_options.h"
#include "tools/training/run_metrics.h"
#include "tools/training/toml_file.h"

namespace trireme {
namespace {

/// A parameter as given in the file.
struct Entry {
  std::string name;
  const toml::table* table;
  std::string place;  // "space.toml:7: "
  toml::source_position at;
};

void collect(const toml::table& table, const std::string& prefix, const std::string& source,
             std::vector<Entry>& entries) {
  for (auto&& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    const toml::table* inner = node.as_table();
    if (!inner)
      throw OptionError(
          fmt::format("{}{} must be a table: {{type = \"uniform\", low = 0, high = 1}}", place_in(source, node), name));
    const auto type = inner->find("type");
    if (type != inner->end() && type->second.is_string())
      entries.push_back({name, inner, fmt::format("{}:{}: ", source, key.source().begin.line), key.source().begin});
    else
      collect(*inner, name + ".", source, entries);
  }
}

/// A value in the notation of the command line; "" for another type.
std::string text_of(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  if (const auto* whole = node.as_integer()) return fmt::format("{}", whole->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  return "";
}

std::vector<std::string> texts_of(const toml::node& node) {
  if (const toml::array* list = node.as_array()) {
    std::vector<std::string> all;
    for (const toml::node& each : *list) all.push_back(text_of(each));
    return all;
  }
  return {text_of(node)};
}

double number_in(const Entry& e, const char* key, bool whole) {
  const auto at = e.table->find(key);
  if (at == e.table->end() || !at->second.is_number())
    throw OptionError(fmt::format("{}{} needs numbers low and high", e.place, e.name));
  const double value = at->second.value<double>().value_or(0);
  if (!std::isfinite(value) || (whole && std::floor(value) != value) || std::abs(value) > 1e15)
    throw OptionError(
        fmt::format("{}{}: {} is {}, expected a {}number", e.place, e.name, key, value, whole ? "whole " : ""));
  return value;
}

Parameter parameter_of(const Entry& e) {
  using Kind = Parameter::Kind;
  const std::vector<std::string> kinds{"uniform", "log", "integer", "log_integer", "choice"};
  const std::string type = (*e.table)["type"].value_or(std::string());
  const auto kind = std::ranges::find(kinds, type);
  if (kind == kinds.end()) throw OptionError(fmt::format("{}{}: type: {}", e.place, e.name, unknown_name(type, kinds)));
  Parameter p{.name = e.name, .kind = static_cast<Kind>(kind - kinds.begin())};
  std::set<std::string> known{"type", "only_if"};
  if (p.kind == Kind::choice) {
    known.insert("values");
    const auto at = e.table->find("values");
    if (at != e.table->end() && at->second.is_array()) {
      p.values = texts_of(at->second);
      for (const toml::node& value : *at->second.as_array())
        if (!value.is_string() && !value.is_boolean() && !value.is_number())
          throw OptionError(fmt::format("{}{}: values must be texts, numbers, true or false", e.place, e.name));
    }
    if (std::set<std::string>(p.values.begin(), p.values.end()).size() != p.values.size())
      throw OptionError(fmt::format("{}{} has a value twice; remove one", e.place, e.name));
    p.low = 0;
    p.high = static_cast<double>(p.values.size()) - 1;
    p.levels = static_cast<int>(p.values.size());
  } else {
    known.insert({"low", "high", "levels"});
    p.low = number_in(e, "low", p.is_whole());
    p.high = number_in(e, "high", p.is_whole());
    if (p.is_log() && p.low <= 0)
      throw OptionError(
          fmt::format("{}{}: low is {}, expected above 0 for a logarithmic range", e.place, e.name, p.low));
    const double room = p.is_whole() ? p.high - p.low + 1 : 1e9;
    const auto levels = e.table->find("levels");
    const bool given = levels != e.table->end();
    const std::int64_t count =
        given ? levels->second.value_exact<std::int64_t>().value_or(0) : static_cast<std::int64_t>(std::min(room, 5.0));
    const double most = std::min(room, 1e9);
    if (p.low < p.high && (count < 1 || static_cast<double>(count) > most))
      throw OptionError(fmt::format("{}{}: levels must be a whole number from 1 to {:.0f}", e.place, e.name, most));
    p.levels = static_cast<int>(count);
  }
  for (auto&& [key, node] : *e.table)
    if (!known.contains(std::string(key.str())))
      throw OptionError(
          fmt::format("{}{}: {}", e.place, e.name, unknown_name(std::string(key.str()), {known.begin(), known.end()})));
  if (!(p.low < p.high))
    throw OptionError(fmt::format("{}{} has no room: {}", e.place, e.name,
                                  p.kind == Kind::choice ? "it needs at least two values"
                                                         : fmt::format("low {} is not below high {}", p.low, p.high)));
  return p;
}

void flatten(const toml::table& table, const std::string& prefix,
             std::vector<std::pair<std::string, std::vector<std::string>>>& found) {
  for (auto&& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    if (const toml::table* inner = node.as_table())
      flatten(*inner, name + ".", found);
    else
      found.emplace_back(name, texts_of(node));
  }
}

/// Adds the parameter's conditions. Returns false if a parameter on which it depends is not in `before` yet.
bool add_conditions(const Entry& e, Parameter& p, const std::vector<Parameter>& before, const std::vector<Entry>& all) {
  const auto at = e.table->find("only_if");
  if (at == e.table->end()) return true;
  std::vector<std::pair<std::string, std::vector<std::string>>> conditions;
  if (at->second.is_table()) flatten(*at->second.as_table(), "", conditions);
  if (conditions.empty())
    throw OptionError(
        fmt::format("{}{}: only_if needs a parameter and its value: {{\"optim.name\" = \"sgd\"}}", e.place, e.name));
  p.only_if.clear();
  for (const auto& [name, texts] : conditions) {
    if (std::ranges::find(all, name, &Entry::name) == all.end())
      throw OptionError(
          fmt::format("{}{}: only_if names {}, which is not a parameter of the space", e.place, e.name, name));
    const auto parent = std::ranges::find(before, name, &Parameter::name);
    if (parent == before.end()) return false;
    Condition c{.parameter = static_cast<std::size_t>(parent - before.begin())};
    for (const std::string& text : texts) {
      c.values.push_back(parent->number(text));
      if (std::isnan(c.values.back()) || !parent->is_whole())
        throw OptionError(fmt::format("{}{}: only_if: {} is never '{}'", e.place, e.name, name, shortened(text)));
    }
    p.only_if.push_back(std::move(c));
  }
  return true;
}

Space space_of(const toml::table& table, const std::string& source) {
  std::vector<Entry> entries;
  collect(table, "", source, entries);
  std::ranges::stable_sort(entries, {}, [](const Entry& e) { return std::pair(e.at.line, e.at.column); });
  if (entries.empty()) throw OptionError(fmt::format("{}: [space] is empty; add a parameter", source));
  std::vector<Parameter> parameters, left;
  std::vector<Entry> open = entries;
  while (!open.empty()) {
    const auto next = std::ranges::find_if(open, [&](const Entry& e) {
      Parameter p = parameter_of(e);
      if (!add_conditions(e, p, parameters, entries)) return false;
      parameters.push_back(std::move(p));
      return true;
    });
    if (next == open.end())
      throw OptionError(
          fmt::format("{}{}: only_if forms a circle; remove one of its conditions", open[0].place, open[0].name));
    open.erase(next);
  }
  return Space(std::move(parameters));
}

/// Keys of evaluations that can be objectives: of pictures, texts and volumes.
const std::vector<std::string>& objectives() {
  static const std::vector<std::string> keys = [] {
    std::vector<std::string> all{"test_top1",   "test_top5",    "test_loss",    "test_correct",    "train_top1",
                                 "train_loss",  "images_per_s", "tokens_per_s", "test_perplexity", "test_bits_per_byte",
                                 "step_ms_p50", "step_ms_p95",  "memory_mb",    "wait_share"};
    for (const Metric& metric : {Metric(Dice{}), Metric(MeanIoU{}), Metric(RegressionErrors{})})
      for (const MetricResult& result : metric.results()) all.push_back("test_" + result.name);
    for (const std::string& key : std::vector(all))
      if (key.starts_with("test_")) all.push_back("val_" + key.substr(5));
    return all;
  }();
  return keys;
}

[[noreturn]] void refuse(const std::string& text) { throw OptionError("study: " + text); }

/// Whether the search sets this setting itself.
bool is_own(const std::string& name) {
  constexpr std::array others{"epochs", "parallel.ranks", "parallel.virtual", "parallel.mesh", "device"};
  return name.starts_with("run.") || name.starts_with("checkpoint.") || std::ranges::find(others, name) != others.end();
}

/// Whether a resumed training cannot change this setting.
bool is_fixed(const std::string& name) {
  constexpr std::array names{"model",     "weights",           "seed",      "dtype", "zero_gamma",
                             "recompute", "recompute_offload", "optim.name"};
  return name.starts_with("arch.") || name.starts_with("data.") || name.starts_with("parallel.") ||
         std::ranges::find(names, name) != names.end();
}

void check_model(const std::string& name) {
  std::vector<std::string> known;
  for (const ModelRow& row : models()) known.push_back(row.name);
  if (std::ranges::find(known, name) == known.end()) throw OptionError("model: " + unknown_name(name, known));
}

constexpr std::int64_t most_trials = 100'000;

void check_parameters(const Question& q, const TrainerOptions& settings) {
  TrainerOptions any;
  const auto table = option_table(any);
  std::map<std::string, std::string> seen;  // the space's name of each setting
  for (const Parameter& p : q.space.parameters()) {
    const std::string& name = find_option(table, p.name).name;
    if (const auto [at, is_new] = seen.emplace(name, p.name); !is_new)
      refuse(fmt::format("the space has {} twice, as {} and as {}; leave out one of them", name, at->second, p.name));
    if (is_own(name)) refuse(fmt::format("{} cannot be in a space, because the search sets it; leave it out", p.name));
    if (q.options.algorithm == "pbt" && is_fixed(name))
      refuse(fmt::format("pbt changes settings during a training, and {} cannot change then; leave it out", p.name));
  }
  for (std::size_t i = 0; i < q.space.size(); ++i) {  // both ends and the middle of each range, and each value
    const Parameter& p = q.space[i];
    std::vector<double> ends{p.low, p.high, p.at(0.382)};
    for (double v = 0; p.kind == Parameter::Kind::choice && v <= p.high; ++v) ends.push_back(v);
    for (const double v : ends) {
      TrainerOptions copy = settings;
      const auto options = option_table(copy);
      const Option& option = find_option(options, p.name);
      try {
        set_option(option, p.text(v));
        check_value(option);
        if (p.name == "model") check_model(copy.model);
      } catch (const OptionError& e) { refuse(fmt::format("{} = {}: {}", p.name, shortened(p.text(v)), e.what())); }
    }
  }
}

}  // namespace

std::vector<Option> option_table(TuneOptions& o) {
  constexpr double any = -std::numeric_limits<double>::infinity(), most = -any;
  return {{"tune.algorithm", &o.algorithm, "", any, most, "random, sobol, grid, tpe, asha, pbt"},
          {"tune.objective", &o.objective},
          {"tune.trials", &o.trials, "", 1, most_trials},
          {"tune.epochs", &o.epochs, "", 0, 1e9},
          {"tune.min_epochs", &o.min_epochs, "", 1, 1e9},
          {"tune.eta", &o.eta, "", 2, 1000},
          {"tune.seed", &o.seed},
          {"tune.parallel", &o.parallel, "", 1, 4096},
          {"tune.ranks", &o.ranks, "", 0, 65536},
          {"tune.launcher", &o.launcher, "", any, most, "threads, mpiexec, srun"},
          {"tune.median_stop", &o.median_stop},
          {"tune.startup", &o.startup, "", 1, 100000},
          {"tune.quantile", &o.quantile, "", 0.01, 0.5},
          {"tune.retries", &o.retries, "", 0, 1000},
          {"tune.lease", &o.lease, "", 0.01, 86400}};
}

Question parse_tune(const std::string& toml, const std::string& source) {
  const toml::table all = parse_toml(toml, source);
  Question q;
  for (const char* name : {"tune", "space"})
    if (const toml::node* node = all.get(name); node && !node->is_table())
      throw OptionError(fmt::format("{}{} must be a table: [{}]", place_in(source, *node), name, name));
  if (const toml::node* tune = all.get("tune"))
    for (auto&& [key, node] : *tune->as_table()) {
      try {
        const std::vector<Option> known = option_table(q.options);
        const Option& option = find_option(known, "tune." + std::string(key.str()));
        set_option(option, option_text(node, option));
        check_value(option);
      } catch (const OptionError& e) { throw OptionError(place_in(source, node) + e.what()); }
    }
  const toml::node* space = all.get("space");
  q.space = space_of(space ? *space->as_table() : toml::table(), source);
  return q;
}

LedgerEntry Question::entry(int trial, const Point& point) const {
  if (!study)
    return {.run = fmt::format("trials/{:04}", trial),
            .cell = fmt::format("trial {}", trial),
            .strategy = options.algorithm,
            .ranks = options.ranks,
            .seed = options.seed};
  const StudyCell& cell = study->cells.at(static_cast<std::size_t>(point.at(0)));
  const auto seed = static_cast<std::int64_t>(point.at(1));
  return {.run = run_of(cell, seed),
          .cell = cell.name,
          .scaling = cell.scaling,
          .strategy = cell.strategy,
          .mesh = cell.mesh,
          .ranks = cell.ranks,
          .seed = seed,
          .config_hash = cell.config_hash};
}

Question question_of(StudyQuestion study) {
  using Kind = Parameter::Kind;
  Question q{.options = {.algorithm = "study", .objective = "", .epochs = 1, .ranks = 1, .retries = 0}};
  const auto cells = std::ssize(study.cells), seeds = std::ptrdiff_t{study.options.seeds};
  q.options.trials = cells * seeds;
  Parameter cell{.name = "cell", .kind = Kind::choice, .high = static_cast<double>(cells - 1), .values = {}};
  for (const StudyCell& c : study.cells) cell.values.push_back(c.name);
  const auto first = static_cast<double>(study.first_seed);
  q.space = Space(
      {cell, {.name = "seed", .kind = Kind::integer, .low = first, .high = first + static_cast<double>(seeds - 1)}});
  q.study = std::move(study);
  return q;
}

Question parse_question(const std::string& toml, const std::string& source) {
  const toml::table all = parse_toml(toml, source);
  if (!all.contains("study") && (all.contains("tune") || all.contains("space"))) return parse_tune(toml, source);
  for (const char* other : {"tune", "space"})
    if (const toml::node* node = all.get(other))
      throw OptionError(
          fmt::format("{}[study] and [{}] are different questions; leave out one", place_in(source, *node), other));
  return question_of(parse_study(toml, source));
}

std::string to_toml(const Question& q) {
  if (q.study) return q.study->toml;
  TuneOptions copy = q.options;
  std::string out = "[tune]\n";
  for (const Option& o : option_table(copy))
    if (o.name != "tune.trials" || copy.trials > 0) out += fmt::format("{} = {}\n", o.name.substr(5), toml_value(o));
  return out + "\n" + q.space.to_toml();
}

TrainerOptions settings_at(const Space& space, const Point& point, TrainerOptions settings) {
  const auto table = option_table(settings);
  for (const auto& [name, text] : space.settings(point)) set_option(find_option(table, name), text);
  validate(settings);
  return settings;
}

void complete(Question& q, const TrainerOptions& settings) {
  TuneOptions& o = q.options;
  if (o.epochs == 0) o.epochs = settings.epochs;
  if (o.epochs < 1) refuse("trials of 0 epochs report nothing; use --epochs 1 or more");
  if (o.ranks == 0) o.ranks = make_ranks(settings);
  if (o.min_epochs > o.epochs)
    refuse(fmt::format("min_epochs is {}, but a trial has {}; use at most that many", o.min_epochs, o.epochs));
  if (settings.parallel.virtual_ranks > 0) refuse("trials run in real time; leave out --virtual");
  const bool validates = settings.data.validation_split > 0;
  if (o.objective.empty()) o.objective = validates ? "val_top1" : "test_top1";
  if (std::ranges::find(objectives(), o.key()) == objectives().end())
    refuse(fmt::format("objective: no evaluation reports '{}'{}; there are {}", shortened(o.key()),
                       did_you_mean(o.key(), objectives()), fmt::join(objectives(), ", ")));
  if (validates ? o.key().starts_with("test_") : o.key().starts_with("val_"))
    refuse(validates ? fmt::format("objective {}: with data.validation_split the test set is used once, after the last "
                                   "epoch; use val_{}",
                                   o.key(), o.key().substr(5))
                     : fmt::format("objective {} needs a validation split; add --data.validation_split 0.1 to the "
                                   "training",
                                   o.key()));
  const bool smallest = o.objective.starts_with('-');
  if (smaller_is_better(o.key()) != smallest)
    refuse(fmt::format("objective '{}' asks for the {} {}, but {} values are better; use '{}{}'", o.objective,
                       smallest ? "smallest" : "largest", o.key(), smallest ? "larger" : "smaller", smallest ? "" : "-",
                       o.key()));
  check_model(settings.model);
  check_parameters(q, settings);
  if (o.algorithm == "sobol" && q.space.size() > Sobol::most)
    refuse(fmt::format("sobol has {} dimensions, but the space has {} parameters; use random", Sobol::most,
                       q.space.size()));
  if (o.algorithm == "grid") {
    const std::int64_t points = std::ssize(GridSearch::points(q.space, o.trials > 0 ? o.trials : most_trials + 1));
    if (points > most_trials)
      refuse(fmt::format("the grid has more than {} points; give parameters fewer levels, or set trials", most_trials));
    o.trials = points;
  }
  if (o.trials == 0) o.trials = 20;
  const std::vector<std::int64_t> rungs = asha_rungs(o);
  const double wanted = std::pow(o.eta, static_cast<double>(rungs.size()) - 1);
  if (o.algorithm == "asha" && static_cast<double>(o.trials) < wanted)
    refuse(fmt::format("asha: of {} trials none reaches the last of the rungs {} with eta {}; use at least {} trials",
                       o.trials, fmt::join(rungs, ", "), o.eta, wanted));
  if (o.median_stop && (o.algorithm == "asha" || o.algorithm == "pbt"))
    refuse(fmt::format("median_stop is for random, sobol, grid and tpe, because {} stops trials itself; leave it out",
                       o.algorithm));
  if (o.algorithm == "pbt" && o.trials < 2) refuse("pbt needs a population of at least two trials");
}

std::string left_out_of_grid(const Question& q) {
  if (q.options.algorithm != "grid") return "";
  const std::int64_t points = std::ssize(GridSearch::points(q.space, most_trials + 1));
  if (points <= q.options.trials) return "";
  const std::string count = points > most_trials ? fmt::format("more than {}", most_trials) : std::to_string(points);
  return fmt::format("of the grid's {} points only the first {} are tried: --trials takes more", count,
                     q.options.trials);
}

}  // namespace trireme
