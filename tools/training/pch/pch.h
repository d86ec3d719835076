// Precompiled for this folder: what nearly every file of it includes.
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "tools/training/from_options.h"
#include "tools/training/resume.h"
#include "tools/training/run_log.h"
