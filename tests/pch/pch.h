// Precompiled for this folder: what nearly every file of it includes.
#include "framework/autograd/tape.h"
#include "framework/layers/init.h"
#include "framework/layers/layers.h"
#include "framework/optim/optimizer.h"
#include "tests/support/catch.h"
