// What random layers need of the Pass: whose rows these are, and this step's key of a layer.
#pragma once
#include "framework/pass.h"
#include "kernels/random.h"

namespace trireme::ops {

/// i64 [rows] on device: the sample ids of the rows at hand.
Tensor sample_ids(const char* op, Index rows, Device device);
/// dropout of rows that hold the elements first[r], first[r] + 1, ... of sample[r] (kernel::Dropout).
Tensor dropout_rows(const Tensor& x, const Tensor& sample, const Tensor& first, double p, std::uint64_t layer);
/// mix(mix(seed, step), layer): every random layer derives its key so.
inline MaskKey pass_key(std::uint64_t layer) {
  const Pass& pass = Pass::current();
  if (pass.step_at) return {pass.seed, pass.step_at.data<std::int64_t>(), layer};
  return mix(mix(pass.seed, pass.step), layer);
}

}  // namespace trireme::ops
