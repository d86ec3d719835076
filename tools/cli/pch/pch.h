// Precompiled for this folder: what nearly every file of it includes.
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tools/cli/commands.h"
#include "tools/training/from_options.h"
