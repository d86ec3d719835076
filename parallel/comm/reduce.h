// Sums (or extremes) of host memory: the arithmetic of all collectives. Single-threaded: ranks divide the pieces among
// themselves.
#pragma once
#include <span>

#include "parallel/comm/communicator.h"

namespace trireme {

// max and min of floating-point values are NaN if an operand is NaN. Zeros are ordered by sign. The order of the
// operands does not matter.

/// to = op(to, from) over count elements of type t.
void reduce_into(void* to, const void* from, Index count, DType t, ReduceOp op);
/// Every block of outs = op over ins, in the order given, so the bits do not depend on the rank that computes them.
/// bf16 and f16 are summed in f32 and rounded once. An out may be one of the ins. count elements each.
void reduce_all(std::span<void* const> outs, std::span<const void* const> ins, Index count, DType t, ReduceOp op);
/// x /= by for a floating-point type; bf16 and f16 are divided in f32 and rounded once.
void divide(void* x, Index count, DType t, int by);

}  // namespace trireme
