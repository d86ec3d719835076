// TOML files of settings: reading and parsing. Every error is one line that names file and line.
#pragma once
#include <toml++/toml.h>

#include <string>

#include "framework/io/options.h"

namespace trireme {

/// The text of a settings file of up to 1 MiB. Throws Error of the kind file if it cannot be read, OptionError if it is
/// larger.
std::string read_settings(const std::string& path);
/// source: path in errors. Throws OptionError "source:line: ..." for invalid TOML and too deep nesting.
toml::table parse_toml(const std::string& text, const std::string& source);
/// The position of a node: "source:line: ".
std::string place_in(const std::string& source, const toml::node&);
/// The node as text for set_option(). Throws OptionError "NAME must be a number" for another type.
std::string option_text(const toml::node&, const Option&);

}  // namespace trireme
