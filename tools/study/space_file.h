// parse_space(): the [space] table of a search's file.
#pragma once
#include <toml++/toml.h>

#include <string>

#include "tools/study/space.h"

namespace trireme {

/// A table per parameter, such as "optim.lr" = {type = "log", low = 1e-4, high = 1e-1}, in the order of the file.
/// source: the file's name, for errors. Throws OptionError that names the line.
Space parse_space(const toml::table&, const std::string& source);

}  // namespace trireme
