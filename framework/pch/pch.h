// Precompiled for this folder: what nearly every file of it includes.
#include <algorithm>
#include <map>
#include <set>

#include "framework/autograd/tape.h"
#include "framework/ops/ops.h"
#include "framework/optim/parameters.h"
#include "framework/tensor/launch.h"
