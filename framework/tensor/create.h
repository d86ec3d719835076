// New tensors of stated values (random ones: framework/layers/init.h). All throw Error for extents that cannot be.
#pragma once
#include "framework/tensor/tensor.h"

namespace trireme {

Tensor ones(const Shape&, DType = DType::f32, Device = cpu());  ///< full() with value 1
Tensor arange(Index end);                                       ///< i64 [end]: 0, 1, ..., end - 1
/// torch.arange: begin + i step, for i from 0 on, up to but without end. Throws Error for a step that does not lead
/// from begin to end, 0 and infinite ones among them.
Tensor arange(double begin, double end, double step = 1, DType = DType::f32);
/// torch.linspace: count numbers from begin to end, both among them; one: begin.
Tensor linspace(double begin, double end, Index count, DType = DType::f32);
Tensor eye(Index n, DType = DType::f32);  ///< [n, n]: 1 on the diagonal, else 0
/// F.one_hot, as numbers of that type: ids i64 [...] -> [..., classes]. Throws Error for an id outside of [0, classes).
Tensor one_hot(const Tensor& ids, Index classes, DType = DType::f32);

}  // namespace trireme
