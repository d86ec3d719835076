#include "tools/cli/config_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "datasets/formats/data_paths.h"
#include "framework/io/checkpoint.h"
#include "kernels/core/suggest.h"
#include "models/registry/models.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

/// Where the string that begins at text[at] ends, as TOML has them: "basic" with escapes or 'literal', on one line, or
/// between three quotes on several.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const bool escapes = quote == '"';
  const std::string fence(3, quote);
  if (text.substr(at, 3) == fence) {
    std::size_t end = at + 3;
    while (end < text.size() && text.substr(end, 3) != fence) end += escapes && text[end] == '\\' ? 2 : 1;
    end = std::min(end + 3, text.size());
    for (int more = 0; more < 2 && end < text.size() && text[end] == quote; ++more) ++end;  // quotes before the fence
    return end;
  }
  std::size_t end = at + 1;
  while (end < text.size() && text[end] != quote && text[end] != '\n') end += escapes && text[end] == '\\' ? 2 : 1;
  return std::min(end + (end < text.size() && text[end] == quote ? 1 : 0), text.size());
}

/// The parser of TOML recurses, so keys that nest too deeply are refused first.
void check_key_depth(const std::string& toml, const std::string& source) {
  constexpr int most = 32;
  int parts = 1, line = 1;
  for (std::size_t at = 0; at < toml.size();) {
    const char c = toml[at];
    if (c == '"' || c == '\'') {
      const std::size_t end = end_of_string(toml, at);
      line += static_cast<int>(std::count(toml.begin() + static_cast<std::ptrdiff_t>(at),
                                          toml.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
      at = end;
      continue;
    }
    if (c == '#') {
      at = std::min(toml.find('\n', at), toml.size());
      continue;
    }
    if (c == '.' && ++parts > most)
      throw OptionError(fmt::format("{}:{}: a key of more than {} parts", source, line, most));
    if (c == '\n') ++line;
    if (std::string_view("=,[]{}\n").find(c) != std::string_view::npos) parts = 1;
    ++at;
  }
}

/// The text of a settings file.
std::string read_settings(const std::string& path) {
  constexpr std::size_t most = std::size_t{1} << 20;
  std::error_code none;
  if (fs::is_directory(path, none)) throw OptionError(path + " is a folder, not a file of settings");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw OptionError(fmt::format("{} cannot be read: {}", path, std::strerror(errno)));
  std::string text(most + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > most) throw OptionError(fmt::format("{} has more than {} bytes: no file of settings", path, most));
  return text;
}

bool fits(const toml::node& node, const Option& o) {
  return std::visit(
      [&]<class T>(const T*) {
        if constexpr (std::same_as<T, std::string>) return node.is_string();
        if constexpr (std::same_as<T, bool>) return node.is_boolean();
        if constexpr (std::same_as<T, double>) return node.is_number();
        if constexpr (std::same_as<T, std::vector<double>>)
          return node.is_array() && std::ranges::all_of(*node.as_array(), [](auto& n) { return n.is_number(); });
        return node.is_integer();
      },
      o.value);
}

/// A value as the command line has it.
std::string text_of(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  if (const auto* whole = node.as_integer()) return fmt::format("{}", whole->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  std::string list;
  for (const toml::node& each : *node.as_array()) list += (list.empty() ? "" : ",") + text_of(each);
  return list;
}

/// The setting of that name.
Option find(TrainerOptions& options, const std::string& name, OldNames old) {
  const std::string now = renamed_option(name);
  if (!now.empty() && old == OldNames::refused) throw OptionError(fmt::format("{} is called {} now", name, now));
  return find_option(option_table(options), now.empty() ? name : now);
}

void set_value(const Option& option, const std::string& text, OldNames old) {
  const std::string now = renamed_value(option.name, text);
  if (now != text && old == OldNames::refused)
    throw OptionError(fmt::format("{}: '{}' is called '{}' now", option.name, text, now));
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
    const std::string where = fmt::format("{}:{}: ", source, node.source().begin.line);
    try {
      const Option option = find(options, name, old);
      if (!fits(node, option)) throw OptionError(fmt::format("{} must be {}", name, type_of(option)));
      set_value(option, text_of(node), old);
    } catch (const OptionError& e) { throw OptionError(where + e.what()); }
  }
}

/// Paths of the recipes that ship, by name.
std::map<std::string, std::string> recipes() {
  std::vector<std::string> folders = data_folders("recipes");
  folders.push_back(TRIREME_SOURCE_RECIPES);
  std::map<std::string, std::string> found;
  std::error_code none;
  for (const std::string& folder : folders)
    for (const auto& entry : fs::directory_iterator(folder, none))
      found.try_emplace(entry.path().stem().string(), entry.path().string());
  return found;
}

}  // namespace

void set(TrainerOptions& options, const std::string& name, const std::string& text) {
  set_value(find(options, name, OldNames::refused), text, OldNames::refused);
}

void parse_config(TrainerOptions& options, const std::string& text, const std::string& source, OldNames old) {
  check_key_depth(text, source);
  try {
    apply(options, toml::parse(text, source), "", source, old);
  } catch (const toml::parse_error& e) {
    throw OptionError(fmt::format("{}:{}: {}", source, e.source().begin.line, e.description()));
  }
}

void load_config(TrainerOptions& options, const std::string& path, OldNames old) {
  parse_config(options, read_settings(path), path, old);
}

std::string find_config(const std::string& name) {
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
    throw OptionError(fmt::format("model: '{}' is a recipe; write --config {}", c.model, c.model));
}

TrainerOptions run_config(const std::string& run) {
  check(fs::is_regular_file(run + "/config.toml"), "run directory", "{} has no config.toml: it is not a run directory",
        run);
  TrainerOptions options;
  load_config(options, run + "/config.toml", OldNames::read);
  return options;
}

TrainerOptions resume_config(const std::string& run) {
  if (run.empty()) throw OptionError("resume: name the run to go on with: --run.dir DIR");
  check(fs::is_directory(run + "/checkpoints"), "resume", "{} holds no checkpoints; train without --resume first", run);
  TrainerOptions options;
  if (fs::exists(run + "/config.toml")) {
    options = run_config(run);
  } else {
    const auto found = find_latest(run);
    check(found && !found->state.config.empty(), "resume", "{} has no config.toml, and no checkpoint that holds one",
          run);
    parse_config(options, found->state.config, found->path + "/manifest.json", OldNames::read);
  }
  options.run.max_steps = 0, options.run.fault = "";
  options.run.resume = options.run.override = false;
  options.run.dir = run;
  return options;
}

}  // namespace trireme
