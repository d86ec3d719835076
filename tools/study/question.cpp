#include "tools/study/question.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "framework/metrics/metrics.h"
#include "kernels/core/suggest.h"
#include "kernels/core/text.h"
#include "tools/study/asha.h"
#include "tools/study/grid.h"
#include "tools/study/sobol.h"
#include "tools/study/space_file.h"
#include "tools/training/from_options.h"
#include "tools/training/run_metrics.h"
#include "tools/training/toml_file.h"

namespace trireme {
namespace {

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
  q.space = parse_space(space ? *space->as_table() : toml::table(), source);
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
