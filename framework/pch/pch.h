// Precompiled for this folder: what nearly every file of it includes.
#include <algorithm>
#include <map>
#include <set>

#include "framework/launch.h"
#include "framework/ops.h"
#include "framework/parameters.h"
#include "framework/tape.h"
