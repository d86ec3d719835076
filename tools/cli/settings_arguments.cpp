#include "tools/cli/settings_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "kernels/core/suggest.h"
#include "tools/cli/config_file.h"

namespace trireme {

namespace {

/// Whether a subcommand leaves out a setting of `trireme train`, because it has its own option or no use for the
/// setting.
bool is_left_out(const std::string& setting, const std::string& subcommand) {
  if (setting == "weights" && subcommand != "train") return true;  // others have an option --weights
  constexpr std::array of_layout{"parallel.ranks", "parallel.mesh", "parallel.strategy"};
  return subcommand == "pack" && std::ranges::find(of_layout, setting) != of_layout.end();
}

/// Placeholder of the option's value in --help.
std::string placeholder(const Option& o) {
  if (std::holds_alternative<bool*>(o.value)) return "true|false";
  if (std::holds_alternative<double*>(o.value)) return "X";
  if (std::holds_alternative<int*>(o.value) || std::holds_alternative<Index*>(o.value)) return "N";
  return std::holds_alternative<std::string*>(o.value) ? "TEXT" : "LIST";
}

}  // namespace

bool is_setting_group(const std::string& group) { return group == "Settings" || group.starts_with("["); }

bool is_common(const std::string& setting, const std::string& subcommand) {
  constexpr std::array everywhere{"device",          "dtype",         "data.name",         "data.root",
                                  "data.batch",      "parallel.mesh", "parallel.strategy", "parallel.ranks",
                                  "parallel.threads"};
  constexpr std::array in_training{"weights",         "epochs",          "seed",         "data.workers",
                                   "data.augment",    "optim.name",      "optim.lr",     "run.dir",
                                   "run.resume",      "run.tensorboard", "run.progress", "run.max_steps",
                                   "checkpoint.steps"};
  return std::ranges::find(everywhere, setting) != everywhere.end() ||
         (subcommand == "train" && std::ranges::find(in_training, setting) != in_training.end());
}

void SettingsArguments::add_to(CLI::App& command, std::optional<TrainerOptions> base) {
  command.get_help_ptr()->description("print this help: options and common settings");
  command.set_help_all_flag("--help-all", "print this help with all settings");
  command.add_option("-c,--config", file_, "TOML file of settings, or the name of a recipe: imagenet_resnet50")
      ->type_name("FILE");
  command.add_flag("--print-config", print_config_, "print the resulting settings as TOML, and stop");
  TrainerOptions unnamed;
  for (const Option& o : option_table(base ? *base : unnamed)) {
    if (o.name == "model") continue;  // positional
    if (is_left_out(o.name, command.get_name())) continue;
    const std::string flags = "--" + o.name + (o.alias.empty() ? "" : ",--" + o.alias);
    CLI::Option* option = command.add_option_function<std::string>(
        flags, [this, name = o.name](const std::string& text) { values_.emplace_back(name, text); }, o.help);
    const std::string value = base ? value_text(o) : "";
    const auto dot = o.name.find('.');
    option->option_text(value.empty() ? "" : "(default: " + value + ")")
        ->type_name(placeholder(o))
        ->group(dot == std::string::npos ? "Settings" : "[" + o.name.substr(0, dot) + "]");
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)->trigger_on_parse();
  }
}

namespace {

/// Whether the word can be the option's value. Options that were once true or false accept these words, too.
bool is_value(const Option& o, const std::string& word) {
  if (word.starts_with("--")) return false;
  try {
    if (word != "true" && word != "false") set_option(o, word);
    return true;
  } catch (const OptionError&) { return false; }
}

}  // namespace

std::vector<std::string> SettingsArguments::with_values(std::vector<std::string> words) {
  TrainerOptions any;
  for (const Option& o : option_table(any)) {
    const std::string alone = std::holds_alternative<bool*>(o.value) ? "true" : o.bare;
    if (alone.empty()) continue;
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i] != "--" + o.name && (o.alias.empty() || words[i] != "--" + o.alias)) continue;
      const bool given = i + 1 < words.size() && is_value(o, words[i + 1]);
      words[i] += "=" + (given ? words[i + 1] : alone);
      if (given) words.erase(words.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
  }
  return words;
}

TrainerOptions SettingsArguments::over(TrainerOptions base) const {
  if (file_) load_config(base, find_config(*file_));
  for (const auto& [name, text] : values_) set(base, name, text);
  return base;
}

bool SettingsArguments::gives_layout() const {
  TrainerOptions other;
  other.parallel = {.ranks = 2, .mesh = "data=2", .strategy = "zero(3)"};
  const TrainerOptions::Parallel a = over({}).parallel, b = over(other).parallel;
  return a.ranks == b.ranks || a.mesh == b.mesh || a.strategy == b.strategy;  // a given one replaces both
}

std::vector<std::string> SettingsArguments::words() const {
  std::vector<std::string> words;
  if (file_) words = {"--config", *file_};
  for (const auto& [name, text] : values_)
    if (text.empty())
      words.insert(words.end(), {"--" + name, ""});  // CLI11 would take the next word for the value of "--name="
    else
      words.push_back(fmt::format("--{}={}", name, text));
  return words;
}

std::string full_name(const CLI::App& subcommand) {
  const CLI::App* parent = subcommand.get_parent();
  return parent && parent->get_parent() ? parent->get_name() + " " + subcommand.get_name() : subcommand.get_name();
}

std::string unexpected(const CLI::App& subcommand, const std::string& word) {
  const std::string help = fmt::format("see trireme {} --help", full_name(subcommand));
  if (word.find_first_not_of('-') == word.npos || !word.starts_with("-"))
    return fmt::format("unexpected argument '{:.200}'; {}", word, help);
  const std::string option = word.substr(0, word.find('=')), name = option.substr(option.find_first_not_of('-'));
  std::vector<std::string> known;
  for (const CLI::Option* each : subcommand.get_options())
    if (!is_setting_group(each->get_group()))
      for (const std::string& own : each->get_lnames()) known.push_back(own);
  std::string why = fmt::format("unknown option '{:.200}'", option);
  try {
    check_setting_name(name);
    why = fmt::format("trireme {} does not take {:.200}", full_name(subcommand), option);
  } catch (const OptionError& e) {
    const std::string near = suggestion(name, known);
    if (!near.empty() && renamed_option(name).empty())
      why += fmt::format(" (did you mean '--{}'?)", near);
    else if (subcommand.get_option_no_throw("--config"))
      why = e.what();
  }
  return fmt::format("{}; {}", why, help);
}

}  // namespace trireme
