// Helpers of random ops: sample ids of rows, and the key of a layer's call.
#pragma once
#include "framework/autograd/step_context.h"
#include "kernels/core/random.h"

namespace trireme::ops {

/// i64 [rows of x] on x's device: the sample ids of its rows. Throws Error if its batch has ids for another number of
/// rows.
Tensor sample_ids(const char* op, const Tensor& x);
/// Dropout where row r has the elements first[r], first[r] + 1, ... of sample[r] (kernel::Dropout).
Tensor dropout_rows(const Tensor& x, const Tensor& sample, const Tensor& first, double p, const MaskKey& key);
/// The key of a layer for x's batch: mix(mix(seed, step), layer) at the first call, another one at each later call of
/// the layer for the same batch.
MaskKey mask_key(const Tensor& x, std::uint64_t layer);

}  // namespace trireme::ops
