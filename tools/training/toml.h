// Settings files before they are parsed: the parser of TOML recurses, so what is nested too deeply is refused first.
#pragma once
#include <string>

namespace trireme {

/// The text of a settings file. Throws ConfigError for one that cannot be read or is larger than a mebibyte.
std::string read_settings(const std::string& path);
/// Throws ConfigError naming source and line for a key of more than 32 parts: a.b.c has three.
void check_key_depth(const std::string& toml, const std::string& source);

}  // namespace trireme
