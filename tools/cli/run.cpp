#include "tools/cli/run.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>

#include "framework/io/options.h"
#include "kernels/core/environment.h"
#include "kernels/core/suggest.h"
#include "tools/cli/command_line.h"

namespace trireme {

std::string CommandLine::unknown_subcommand() const {
  std::vector<std::string> names;
  for (const CLI::App* command : app_.get_subcommands({})) names.push_back(command->get_name());
  const std::string word = argc_ > 1 ? argv_[1] : "";
  if (argc_ == 1) return "no command is given; see trireme --help";
  if (word.starts_with("-") && word != "-h" && word != "--help" && word != "--version")
    return fmt::format("unknown option '{:.200}'{} before a command; see trireme --help", word,
                       did_you_mean(word, std::array<std::string, 2>{"--help", "--version"}));
  constexpr std::pair<const char*, const char*> renamed[] = {
      {"launch", "train -n N"},      {"scaling", "study run"},
      {"tune", "study run"},         {"profile", "bench --machine FILE"},
      {"simulate", "plan simulate"}, {"verify", "plan verify"}};
  for (const auto& [old, now] : renamed)
    if (word == old) return fmt::format("{} is now called {}; see trireme --help", old, now);
  if (word.starts_with("-")) return "";
  for (const CLI::App* command : app_.get_subcommands({})) {
    if (command->get_name() != word) continue;
    std::vector<std::string> inner;
    for (const CLI::App* each : command->get_subcommands({})) inner.push_back(each->get_name());
    const std::string next = argc_ > 2 ? argv_[2] : "";
    if (inner.empty() || next.starts_with("-") || std::ranges::find(inner, next) != inner.end()) return "";
    return fmt::format("unknown command '{} {:.200}'{}; there are {}", word, next, did_you_mean(next, inner),
                       fmt::join(inner, ", "));
  }
  return fmt::format("unknown command '{:.200}'{}; there are {}", word, did_you_mean(word, names),
                     fmt::join(names, ", "));
}

int CommandLine::run() {
  try {
    std::vector<std::string> words(argv_ + 1, argv_ + argc_);
    if (!words.empty() && words[0] == "study") {
      const auto end = std::ranges::find(words, "--");
      if (end != words.end()) study_.words.assign(end + 1, words.end());
      words.erase(end, words.end());
    }
    if (!words.empty() && words[0] == "train") std::ranges::replace(words, "-np", "-n");
    words = SettingsArguments::with_values(std::move(words));
    std::ranges::reverse(words);  // the order that CLI11 expects
    app_.parse(std::move(words));
  } catch (const CLI::Success& e) { return app_.exit(e); } catch (const CLI::ParseError& e) {  // --help, --version
    const std::string unknown = unknown_subcommand();
    const CLI::App* chosen = &app_;
    while (!chosen->get_subcommands().empty()) chosen = chosen->get_subcommands()[0];
    const std::string help = chosen == &app_ ? "trireme --help" : fmt::format("trireme {} --help", full_name(*chosen));
    throw OptionError(unknown.empty() ? fmt::format("{}; see {}", e.what(), help) : unknown);
  }
  check_environment();
  for (auto& [command, action] : actions_) {
    if (!command->parsed()) continue;
    const auto extra = command->remaining();
    if (extra.empty()) return action();
    throw OptionError(unexpected(*command, extra.front()));
  }
  return 2;
}

int run_command_line(int argc, char** argv) { return CommandLine(argc, argv).run(); }

}  // namespace trireme
