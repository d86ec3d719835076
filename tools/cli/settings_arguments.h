// SettingsArguments: --config FILE, --print-config and one option per setting, for subcommands that take settings.
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
  /// Declares the options. --weights is only for train; pack and
  /// profile those of layouts that they do not start. base: settings that --help shows as defaults; none: defaults are
  /// a run's settings.
  void add_to(CLI::App& subcommand, std::optional<TrainerOptions> base = TrainerOptions{});
  /// Rewrites a command line so that an option with an optional value has it after "=". The next word is its value only
  /// if it is a valid value: `--resume mlp` keeps mlp as the model.
  static std::vector<std::string> with_values(std::vector<std::string> words);
  /// Applies the config file, then the options, to base (defaults or the settings of a run). Throws OptionError for
  /// invalid settings.
  TrainerOptions over(TrainerOptions base) const;
  /// Whether the config file or the options give ranks, a mesh or a strategy.
  bool gives_layout() const;
  /// Sets a setting before all options are applied.
  void set_first(const std::string& name, const std::string& text) { values_.insert(values_.begin(), {name, text}); }
  bool print_config() const { return print_config_; }

 private:
  std::optional<std::string> file_;
  std::vector<std::pair<std::string, std::string>> values_;
  bool print_config_ = false;
};

/// Whether an option group of --help holds settings: "Settings", "[data]", ...
bool is_setting_group(const std::string& group);
/// Whether the --help of a subcommand shows the setting; --help-all shows all settings.
bool is_common(const std::string& setting, const std::string& subcommand);
/// Message for an argument that a subcommand does not know, with the most similar setting.
std::string unexpected(const CLI::App& subcommand, const std::string& word);

}  // namespace trireme
