// Precompiled for this folder: what nearly every file of it includes.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "framework/autograd/tape.h"
#include "framework/ops/ops.h"
#include "parallel/comm/world/mesh.h"
#include "parallel/strategies/strategy.h"
