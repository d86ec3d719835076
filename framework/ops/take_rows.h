// Rows of a table in the type of the activations, for embeddings.
#pragma once
#include "framework/tensor/tensor.h"

namespace trireme::ops {

/// take(x, ids).to(type) along axis 0; of f32 rows in bf16 or f16 by one kernel, which converts only these rows. x [N,
/// ...] floating, ids i64 of any shape. The gradient has x's type. Throws Error as take().
Tensor take_rows(const Tensor& x, const Tensor& ids, DType type);

}  // namespace trireme::ops
