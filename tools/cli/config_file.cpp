#include "tools/cli/config_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "datasets/formats/data_paths.h"
#include "framework/io/checkpoint.h"
#include "kernels/core/suggest.h"
#include "models/registry/models.h"
#include "tools/training/toml_file.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

/// The setting with this name.
Option find(TrainerOptions& options, const std::string& name, OldNames old) {
  const std::string now = renamed_option(name);
  if (!now.empty() && old == OldNames::refused)
    throw OptionError(fmt::format("{} is now called {}; use the new name", name, now));
  return find_option(option_table(options), now.empty() ? name : now);
}

void set_value(const Option& option, const std::string& text, OldNames old) {
  const std::string now = renamed_value(option.name, text);
  if (now != text && old == OldNames::refused)
    throw OptionError(fmt::format("{}: '{}' is now called '{}'; use the new name", option.name, text, now));
  set_option(option, now);
}

void apply(TrainerOptions& options, const toml::table& table, const std::string& prefix, const std::string& source,
           OldNames old) {
  for (auto&& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    if (const toml::table* inner = node.as_table()) {
      apply(options, *inner, name + ".", source, old);
      continue;
    }
    try {
      const Option option = find(options, name, old);
      set_value(option, option_text(node, option), old);
    } catch (const OptionError& e) { throw OptionError(place_in(source, node) + e.what()); }
  }
}

/// Runs `f`. A wrong value in a user's file is a usage error; in a file that a run wrote, it is damaged data.
template <class F>
void as_damage(OldNames old, const F& f) {
  try {
    f();
  } catch (const OptionError& e) {
    if (old == OldNames::refused) throw;
    throw Error(e.what(), e.where(), ErrorKind::data);
  }
}

/// Paths of the recipes in the installation, by name.
std::map<std::string, std::string> recipes() {
  std::map<std::string, std::string> found;
  std::error_code none;
  for (const std::string& folder : data_folders("recipes"))
    for (const auto& entry : fs::directory_iterator(folder, none))
      found.try_emplace(entry.path().stem().string(), entry.path().string());
  return found;
}

}  // namespace

void set(TrainerOptions& options, const std::string& name, const std::string& text) {
  set_value(find(options, name, OldNames::refused), text, OldNames::refused);
}

void check_setting_name(const std::string& name) {
  TrainerOptions none;
  (void)find(none, name, OldNames::refused);
}

void parse_config(TrainerOptions& options, const std::string& text, const std::string& source, OldNames old,
                  const std::vector<std::string>& others) {
  as_damage(old, [&] {
    toml::table table = parse_toml(text, source);
    for (const std::string& other : others) table.erase(other);
    apply(options, table, "", source, old);
  });
}

void load_config(TrainerOptions& options, const std::string& path, OldNames old) {
  std::string text;
  as_damage(old, [&] { text = read_settings(path); });
  parse_config(options, text, path, old);
}

std::string find_config(const std::string& name) {
  if (name.empty()) throw OptionError("config is empty; give a TOML file or the name of a recipe");
  std::error_code none;
  if (fs::exists(name, none) || fs::path(name).has_parent_path() || fs::path(name).has_extension()) return name;
  const auto all = recipes();
  if (const auto at = all.find(name); at != all.end()) return at->second;
  std::vector<std::string> known;
  for (const auto& [recipe, path] : all) known.push_back(recipe);
  throw OptionError("config: " + unknown_name(name, known));
}

void check_model_name(const TrainerOptions& c) {
  if (std::ranges::any_of(models(), [&](const ModelRow& row) { return row.name == c.model; })) return;
  if (recipes().contains(c.model))
    throw OptionError(fmt::format("model: '{}' is a recipe, not a model; use --config {}", c.model, c.model));
}

TrainerOptions run_config(const std::string& run) {
  check(fs::is_regular_file(run + "/config.toml"), ErrorKind::file, "run directory",
        "{} has no config.toml, so it is no run directory; give the --run.dir of a training", run);
  TrainerOptions options;
  load_config(options, run + "/config.toml", OldNames::read);
  check(std::ranges::any_of(models(), [&](const ModelRow& row) { return row.name == options.model; }), "run directory",
        "{} is a run of '{}', a model that only the program that trained it has; use that program", run, options.model);
  return options;
}

TrainerOptions resume_config(const std::string& run) {
  check(fs::is_directory(run + "/checkpoints"), ErrorKind::file, "resume",
        "{} has no checkpoints; train without --resume first", run);
  TrainerOptions options;
  if (fs::exists(run + "/config.toml")) {
    options = run_config(run);
  } else {
    const auto found = find_latest(run);
    check(found && !found->state.config.empty(), ErrorKind::file, "resume",
          "{} has no config.toml, and no checkpoint with one; train without --resume", run);
    parse_config(options, found->state.config, found->path + "/manifest.json", OldNames::read);
  }
  options.run.max_steps = 0;
  options.run.time_limit = 0;
  options.run.fault = "";
  options.run.resume = "no";
  options.run.override = false;
  options.run.dir = run;
  return options;
}

}  // namespace trireme
