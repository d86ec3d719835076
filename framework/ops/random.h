// What random layers need of the batch: whose rows these are, and the key of this call of a layer.
#pragma once
#include "framework/autograd/step_context.h"
#include "kernels/core/random.h"

namespace trireme::ops {

/// i64 [rows of x] on x's device: the sample ids of its rows. Throws Error where its batch names other rows.
Tensor sample_ids(const char* op, const Tensor& x);
/// dropout of rows that hold the elements first[r], first[r] + 1, ... of sample[r] (kernel::Dropout).
Tensor dropout_rows(const Tensor& x, const Tensor& sample, const Tensor& first, double p, const MaskKey& key);
/// mix(mix(seed, step), layer) of x's batch: every random layer derives its key so. The second call of a layer for the
/// same batch has another key, and so on.
MaskKey mask_key(const Tensor& x, std::uint64_t layer);

}  // namespace trireme::ops
