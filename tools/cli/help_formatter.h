// HelpFormatter: the text of --help and --help-all, at most 80 columns wide.
#pragma once
#include <CLI/CLI.hpp>
#include <string>

namespace trireme {

/// Prints usage, arguments, options, then the footer (examples). --help omits uncommon settings.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
};

}  // namespace trireme
