// Precompiled for this folder: what nearly every file of it includes.
#include "framework/init.h"
#include "framework/layers.h"
#include "framework/optimizer.h"
#include "framework/tape.h"
#include "tests/catch.h"
