// Functions that create tensors of given values (random ones: framework/layers/init.h). All throw Error for impossible
// extents.
#pragma once
#include "framework/tensor/tensor.h"

namespace trireme {

Tensor ones(const Shape&, DType = DType::f32, Device = cpu());  ///< full() with value 1
Tensor arange(Index end);                                       ///< i64 [end]: 0, 1, ..., end - 1
/// torch.arange: begin + i step for i = 0, 1, ... while below end (above it if step < 0). Throws Error for a step that
/// does not lead from begin to end, such as 0 or infinity.
Tensor arange(double begin, double end, double step = 1, DType = DType::f32);
/// torch.linspace: count numbers from begin to end, both included; for count 1 only begin.
Tensor linspace(double begin, double end, Index count, DType = DType::f32);
Tensor eye(Index n, DType = DType::f32);  ///< [n, n]: 1 on the diagonal, else 0
/// F.one_hot, in a given type: ids i64 [...] -> [..., classes]. Throws Error for an id outside of [0, classes).
Tensor one_hot(const Tensor& ids, Index classes, DType = DType::f32);

}  // namespace trireme
