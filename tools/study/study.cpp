#include "tools/study/study.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <random>
#include <set>
#include <sstream>

#include "framework/io/file.h"
#include "kernels/core/text.h"
#include "parallel/comm/world/rank_grid.h"
#include "parallel/strategies/strategy.h"
#include "tools/study/sha256.h"
#include "tools/training/toml_file.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

/// A mesh and strategy, and their number of ranks.
struct Place {
  std::string mesh, strategy;
  int ranks = 1;
};

[[noreturn]] void refuse(const std::string& strategy, const std::string& why) {
  throw OptionError(fmt::format("strategy '{}': {}", strategy, why));
}

/// The axis on which a built-in strategy puts its ranks; "1": the strategy runs on one rank.
std::string own_axis(const std::string& strategy) {
  const std::string name(trimmed(std::string_view(strategy).substr(0, strategy.find_first_of("(|"))));
  if (strategy.empty() || strategy.find('|') != strategy.npos) return "data";
  const auto row = std::ranges::find(strategies(), name, &StrategyRow::name);
  if (row == strategies().end()) return "data";  // a plugin's strategy or an unknown one, which is refused later
  return row->axis.empty() ? "1" : row->axis;
}

/// Number of ranks in the strategy's mesh.
int ranks_in(const std::string& mesh, const std::string& strategy) {
  try {
    return ranks_of(parse_mesh(mesh));
  } catch (const Error& e) { refuse(strategy, e.what()); }
}

std::vector<Place> places_of(const std::string& asked, const std::vector<int>& ranks) {
  const auto cut = asked.find(';');
  std::string mesh(cut == asked.npos ? "" : trimmed(std::string_view(asked).substr(0, cut)));
  const std::string strategy(trimmed(std::string_view(asked).substr(cut == asked.npos ? 0 : cut + 1)));
  if (cut == asked.npos) {
    const std::string axis = own_axis(strategy);
    if (strategy == "serial") return {};  // the study always has a serial run
    if (axis == "1") return {{"", strategy, 1}};
    if (axis != "data") mesh = axis + "=N";
  }
  const auto open = mesh.rfind("=N");
  const bool grows = mesh.empty() || (open != mesh.npos && (open + 2 == mesh.size() || mesh[open + 2] == ','));
  if (!grows) return {{mesh, strategy, ranks_in(mesh, asked)}};
  std::vector<Place> places;
  for (const int n : ranks) {
    if (n == 1) continue;
    if (mesh.empty()) {
      places.push_back({"", strategy, n});
      continue;
    }
    std::string with = mesh;
    const int others = ranks_in(with.replace(open + 1, 1, "1"), asked);
    if (n % others != 0)
      refuse(asked, fmt::format("{} ranks are no multiple of the {} that the mesh {} has without N; use multiples", n,
                                others, mesh));
    places.push_back({mesh.substr(0, open + 1) + std::to_string(n / others) + mesh.substr(open + 2), strategy, n});
  }
  if (places.empty()) refuse(asked, "it needs several ranks, but --ranks has none above 1; add some");
  return places;
}

/// Letters, digits and points; any other sequence becomes one underscore.
std::string slug(const std::string& text) {
  std::string out;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '.')
      out += c;
    else if (!out.empty() && out.back() != '_')
      out += '_';
  while (out.ends_with('_')) out.pop_back();
  return out.substr(0, 80);
}

std::string toml_quoted(std::string text) { return toml_value({.name = "", .value = &text}); }

PlannedCell planned(const StudyOptions& study, const TrainerOptions& settings, const Place& at, bool weak) {
  PlannedCell cell;
  cell.scaling = weak ? "weak" : "strong";
  cell.strategy = at.strategy;
  cell.mesh = at.mesh;
  cell.ranks = at.ranks;
  cell.name = fmt::format("{}-r{}-{}", cell.scaling, cell.ranks,
                          slug(at.strategy.empty() ? "data_parallel" : at.mesh + " " + at.strategy));
  TrainerOptions& c = cell.settings = settings;
  c.run.mllog = true;
  c.run.progress = "off";
  c.run.time_limit = 0;
  c.parallel.strategy = at.strategy;
  c.parallel.mesh = at.mesh;
  c.parallel.ranks = at.ranks;
  if (weak && at.ranks > 1) {
    if (study.scale_lr && c.optim.lr_base_size == 0) c.optim.lr_base_size = c.data.batch;
    c.data.batch *= at.ranks;
  }
  return cell;
}

StudyOptions options_of(const toml::table& table, const std::string& source, StudyOptions o) {
  const auto wrong = [&](const toml::node& node, const std::string& what) {
    throw OptionError(place_in(source, node) + what);
  };
  std::vector<double> ranks(o.ranks.begin(), o.ranks.end());
  const std::vector<Option> known{{"study.ranks", &ranks, "", 1, 65536},
                                  {"study.seeds", &o.seeds, "", 1, 1000},
                                  {"study.strong", &o.strong},
                                  {"study.weak", &o.weak},
                                  {"study.scale_lr", &o.scale_lr},
                                  {"study.mpi", &o.mpi},
                                  {"study.target", &o.target, "", 0, 100}};
  for (auto&& [key, node] : table) {
    const std::string name = "study." + std::string(key.str());
    if (name == "study.strategies") {
      const toml::array* list = node.as_array();
      if (!list) wrong(node, "study.strategies must be a list of texts");
      o.strategies.clear();
      for (const toml::node& each : *list) {
        if (!each.is_string()) wrong(each, "study.strategies must be a list of texts");
        o.strategies.push_back(**each.as_string());
      }
      continue;
    }
    try {
      const Option option = find_option(known, name);
      set_option(option, option_text(node, option));
      check_value(option);
      if (std::ranges::any_of(ranks, [](double n) { return n != std::floor(n); }))
        throw OptionError("study.ranks must be whole numbers");
    } catch (const OptionError& e) { wrong(node, e.what()); }
  }
  o.ranks.clear();
  for (const double n : ranks) o.ranks.push_back(static_cast<int>(n));
  return o;
}

std::vector<StudyCell> cells_in(const toml::table& all, const std::string& source) {
  std::vector<StudyCell> cells;
  const toml::array* list = all["cell"].as_array();
  if (!list) return cells;
  for (const toml::node& node : *list) {
    const toml::table* t = node.as_table();
    const auto text = [&](const char* key) { return t ? (*t)[key].value_or(std::string()) : std::string(); };
    StudyCell cell{.name = text("name"),
                   .scaling = text("scaling"),
                   .strategy = text("strategy"),
                   .mesh = text("mesh"),
                   .ranks = t ? (*t)["ranks"].value_or(0) : 0,
                   .config_hash = text("config_hash")};
    if (cell.name.empty() || cell.scaling.empty() || cell.ranks < 1 || cell.config_hash.size() != 64 ||
        cell.name.find('/') != cell.name.npos)
      throw OptionError(place_in(source, node) + "a cell needs name, scaling, ranks and config_hash");
    cells.push_back(std::move(cell));
  }
  return cells;
}

}  // namespace

std::string config_hash(const std::string& toml) {
  constexpr std::array<std::string_view, 15> left_out{
      "seed",           "run.dir",         "run.resume", "run.override",   "run.progress", "run.log_seconds",
      "run.time_limit", "run.tensorboard", "run.fault",  "run.histograms", "run.images",   "run.log_format",
      "run.profile",    "run.mllog",       "data.root"};
  std::string kept, section, line;
  for (std::istringstream in(toml); std::getline(in, line);) {
    if (line.starts_with('[')) section = line.substr(1, line.find(']') - 1) + ".";
    const std::string name = section + line.substr(0, line.find(' '));
    if (line.empty() || line.starts_with('[') || std::ranges::find(left_out, name) != left_out.end()) continue;
    kept += name + line.substr(std::min(line.find(' '), line.size())) + "\n";
  }
  return sha256(kept);
}

std::vector<PlannedCell> cells_of(const StudyOptions& study, const TrainerOptions& settings) {
  std::vector<PlannedCell> cells;
  std::set<std::string> names;
  const auto add = [&](PlannedCell cell) {
    if (const std::string name = cell.name; names.contains(name))
      for (int i = 2; names.contains(cell.name); ++i) cell.name = fmt::format("{}-{}", name, i);
    names.insert(cell.name);
    cell.config_hash = config_hash(to_toml(cell.settings));
    const auto same = std::ranges::find(cells, cell.config_hash, &PlannedCell::config_hash);
    if (same != cells.end())
      refuse(cell.strategy, fmt::format("on {} rank{} it is there twice, also as {}; leave out one", cell.ranks,
                                        cell.ranks == 1 ? "" : "s", same->name));
    cells.push_back(std::move(cell));
  };
  PlannedCell serial = planned(study, settings, {}, !study.strong);
  serial.name = "serial";
  add(serial);
  if (settings.parallel.threads > 0) {
    serial.name = "serial-all_cores";
    serial.settings.parallel.threads = 0;
    add(serial);
  }
  for (const bool weak : {false, true}) {
    if (weak ? !study.weak : !study.strong) continue;
    for (const std::string& strategy : study.strategies)
      for (const Place& place : places_of(strategy, study.ranks)) {
        const bool seen = weak && study.strong && place.ranks == 1;  // weak and strong are equal on one rank
        if (!seen) add(planned(study, settings, place, weak));
      }
  }
  return cells;
}

std::vector<std::pair<std::size_t, int>> order_of(std::size_t cells, int seeds) {
  std::vector<std::pair<std::size_t, int>> order;
  std::mt19937_64 random(20);
  for (int seed = 0; seed < seeds; ++seed) {
    const auto first = static_cast<std::ptrdiff_t>(order.size());
    for (std::size_t c = 0; c < cells; ++c) order.emplace_back(c, seed);
    for (std::size_t left = cells; left > 1; --left)  // Fisher and Yates
      std::swap(order[static_cast<std::size_t>(first) + left - 1],
                order[static_cast<std::size_t>(first) + random() % left]);
  }
  return order;
}

std::string StudyQuestion::asked_by() const {
  return fmt::format("defined by {}, SHA-256 {}", study_file, sha256(toml));
}

std::string run_of(const StudyCell& cell, std::int64_t seed) { return fmt::format("runs/{}/seed_{}", cell.name, seed); }

std::string to_toml(const StudyOptions& study, const TrainerOptions& settings, const std::vector<PlannedCell>& cells) {
  TrainerOptions c = settings;
  c.run.fault = "";
  c.parallel.ranks = 1;
  c.parallel.mesh = c.parallel.strategy = "";
  std::vector<std::string> strategies;
  for (const std::string& s : study.strategies) strategies.push_back(toml_quoted(s));
  double target = study.target;
  std::string text = to_toml(c);
  text += fmt::format(
      "\n[study]\nranks = [{}]\nstrategies = [{}]\nseeds = {}\nstrong = {}\nweak = {}\nscale_lr = {}\nmpi = {}\n"
      "target = {}\n",
      fmt::join(study.ranks, ", "), fmt::join(strategies, ", "), study.seeds, study.strong, study.weak, study.scale_lr,
      study.mpi, toml_value({.name = "", .value = &target}));
  for (const PlannedCell& cell : cells)
    text += fmt::format("\n[[cell]]\nname = {}\nscaling = {}\nstrategy = {}\nmesh = {}\nranks = {}\nconfig_hash = {}\n",
                        toml_quoted(cell.name), toml_quoted(cell.scaling), toml_quoted(cell.strategy),
                        toml_quoted(cell.mesh), cell.ranks, toml_quoted(cell.config_hash));
  return text;
}

StudyQuestion parse_study(const std::string& toml, const std::string& source) {
  const toml::table all = parse_toml(toml, source);
  StudyQuestion q{.toml = toml};
  if (const toml::node* study = all.get("study")) {
    if (!study->is_table()) throw OptionError(place_in(source, *study) + "study must be a table: [study]");
    q.options = options_of(*study->as_table(), source, {});
  }
  q.cells = cells_in(all, source);
  for (auto& [name, value] : read_own_toml(toml))
    if (!name.starts_with("study.") && !name.starts_with("[")) q.settings.emplace(name, value);
  q.first_seed = all["seed"].value_or(q.first_seed);
  return q;
}

StudyQuestion read_study(const std::string& directory) {
  const std::string path = directory + "/" + study_file;
  check(fs::is_regular_file(path), ErrorKind::file, "study", "{} has no {}, so it is not the directory of a study",
        directory, study_file);
  return parse_study(read_settings(path), path);
}

bool StudyQuestion::is_synthetic() const {
  const auto at = settings.find("data.name");
  return at != settings.end() && at->second == "\"synthetic\"";
}

}  // namespace trireme
