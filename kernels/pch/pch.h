// Precompiled for this folder: what nearly every file of it includes. (-Db_pch=false builds without.)
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "kernels/core/kernel.h"
