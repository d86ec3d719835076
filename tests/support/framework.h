// What nearly every test file includes.
#pragma once
#include "framework/autograd/tape.h"
#include "framework/layers/init.h"
#include "framework/layers/layers.h"
#include "framework/optim/optimizer.h"
#include "tests/support/catch.h"
