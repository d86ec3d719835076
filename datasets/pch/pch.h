// Precompiled for this folder: what nearly every file of it includes.
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "datasets/core/in_memory.h"
#include "datasets/core/loader.h"
#include "datasets/images/image.h"
#include "framework/io/file.h"
