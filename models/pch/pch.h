// Precompiled for this folder: what nearly every file of it includes.
#include <algorithm>

#include "models/registry/models.h"
