// SettingsArguments: --config FILE, --print-config and an option per setting, of the subcommands that take settings.
#pragma once
#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/training/trainer_options.h"

namespace trireme {

class SettingsArguments {
 public:
  /// Declares them; --weights for train and scaling alone, and to scaling none of those that its cells set. base: what
  /// --help shows as defaults; none: they are a run's.
  void add_to(CLI::App& subcommand, std::optional<TrainerOptions> base = TrainerOptions{});
  /// The words of a command line, in which each option that may stand alone has its value behind "=": the next word if
  /// that is one, so that `--resume mlp` does not swallow the model.
  static std::vector<std::string> with_values(std::vector<std::string> words);
  /// What was given over the base (defaults, or the settings of a run), in the order in which it takes effect: the base
  /// < the config file < options. Throws OptionError for what cannot be.
  TrainerOptions over(TrainerOptions base) const;
  /// Sets one as if it had been the first option.
  void set_first(const std::string& name, const std::string& text) { values_.insert(values_.begin(), {name, text}); }
  bool print_config() const { return print_config_; }

 private:
  std::optional<std::string> file_;
  std::vector<std::pair<std::string, std::string>> values_;
  bool print_config_ = false;
};

/// Whether a group of options of --help holds settings: "Settings", "[data]", ...
bool is_setting_group(const std::string& group);
/// Whether the --help of a subcommand shows the setting; --help-all shows all settings.
bool is_common(const std::string& setting, const std::string& subcommand);
/// The message for words that a subcommand does not know: the setting that was probably meant.
std::string unexpected(const CLI::App& subcommand, const std::string& word);

}  // namespace trireme
