// The manual page and the completion of a shell, generated from the commands' options.
#pragma once
#include <CLI/CLI.hpp>
#include <string>

namespace trireme {

/// trireme(1) in man(7) format. Settings that several commands take are listed once.
std::string man_page(const CLI::App&);
/// A script for Bash that completes commands, options, models and files. models: their names, with blanks in between.
std::string bash_completion(const CLI::App&, const std::string& models);

}  // namespace trireme
