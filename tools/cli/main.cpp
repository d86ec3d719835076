// trireme: train, launch, scaling, doctor, report, eval, predict, generate, pack, import, export, bench, plan,
// simulate, verify, tune, info.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "framework/io/options.h"
#include "kernels/core/environment.h"
#include "kernels/core/suggest.h"
#include "parallel/comm/crash_report.h"
#include "tools/cli/command_line.h"

namespace trireme {

std::string CommandLine::unknown_subcommand() const {
  std::vector<std::string> names;
  for (auto& [command, action] : actions_) names.push_back(command->get_name());
  const std::string word = argc_ > 1 ? argv_[1] : "";
  if (argc_ == 1) return "no command is given; see trireme --help";
  if (word.starts_with("-") && word != "-h" && word != "--help" && word != "--version")
    return fmt::format("unknown option '{:.200}'{} before a command; see trireme --help", word,
                       did_you_mean(word, std::array<std::string, 2>{"--help", "--version"}));
  if (word.starts_with("-") || std::find(names.begin(), names.end(), word) != names.end()) return "";
  return fmt::format("unknown command '{:.200}'{}; there are {}", word, did_you_mean(word, names),
                     fmt::join(names, ", "));
}

int CommandLine::run() {
  try {
    std::vector<std::string> words(argv_ + 1, argv_ + argc_);
    if (!words.empty() && (words[0] == "launch" || words[0] == "tune")) {
      const auto end = std::ranges::find(words, "--");
      if (end != words.end()) (words[0] == "tune" ? tune_.words : launch_.words).assign(end + 1, words.end());
      words.erase(end, words.end());
      std::ranges::replace(words, "-np", "--ranks");
    }
    words = SettingsArguments::with_values(std::move(words));
    std::ranges::reverse(words);  // the order that CLI11 expects
    app_.parse(std::move(words));
  } catch (const CLI::Success& e) { return app_.exit(e); } catch (const CLI::ParseError& e) {  // --help, --version
    const std::string unknown = unknown_subcommand();
    const auto chosen = app_.get_subcommands();
    const std::string help =
        chosen.empty() ? "trireme --help" : fmt::format("trireme {} --help", chosen[0]->get_name());
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

}  // namespace trireme

namespace {

/// Returns `status`, or the status of a file error if stdout could not be written.
int after_output(int status) {
  errno = 0;
  std::cout.flush();
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good()) return status;
  if (status == 0)
    std::fprintf(stderr, "trireme: standard output: the results could not be written: %s\n",
                 std::strerror(errno != 0 ? errno : EIO));
  return status == 0 ? trireme::exit_status(trireme::ErrorKind::file) : status;
}

}  // namespace

int main(int argc, char** argv) {
  trireme::report_crashes();
  std::signal(SIGXFSZ, SIG_IGN);  // writing beyond the file-size limit then throws an error with the path instead of
                                  // killing the process
  try {
    return after_output(trireme::CommandLine(argc, argv).run());
  } catch (const std::exception&) {
    std::fprintf(stderr, "trireme: %s\n", trireme::current_message().c_str());
    return trireme::exit_status(trireme::current_kind());
  }
}
