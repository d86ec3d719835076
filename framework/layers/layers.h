// All layers of this folder. Each holds its weights as Tensors (copies share them), drawn on construction.
// initialize(model, seed) draws them again from a seed and their names.
#pragma once
#include "framework/layers/activation.h"
#include "framework/layers/attention.h"
#include "framework/layers/conv.h"
#include "framework/layers/dropout.h"
#include "framework/layers/embedding.h"
#include "framework/layers/experts.h"
#include "framework/layers/hooked.h"
#include "framework/layers/inference.h"
#include "framework/layers/kv_cache.h"
#include "framework/layers/linear.h"
#include "framework/layers/lm_head.h"
#include "framework/layers/norm.h"
#include "framework/layers/pool.h"
#include "framework/layers/rotary.h"
#include "framework/layers/sequential.h"
#include "framework/layers/summary.h"
