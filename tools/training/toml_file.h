// TOML files of settings: read and parsed so that whatever is wrong becomes one line that names file and line.
#pragma once
#include <toml++/toml.h>

#include <string>

#include "framework/io/options.h"

namespace trireme {

/// The text of a settings file of up to 1 MiB. Throws Error of the kind file if it cannot be read, OptionError if it is
/// larger.
std::string read_settings(const std::string& path);
/// source: what errors name, a path. Throws OptionError "source:line: ..." for what is no TOML, or nests too deeply.
toml::table parse_toml(const std::string& text, const std::string& source);
/// "source:line: ", where the node stands.
std::string place_in(const std::string& source, const toml::node&);
/// The node as a text that set_option() reads. Throws OptionError "NAME must be a number" for one of another type.
std::string option_text(const toml::node&, const Option&);

}  // namespace trireme
