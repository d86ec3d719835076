// Precompiled for this folder: what nearly every file of it includes.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "framework/ops.h"
#include "framework/tape.h"
#include "parallel/mesh.h"
#include "parallel/strategy.h"
