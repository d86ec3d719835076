// What the ops share: weights in the data's type, gradients of broadcast operands, the two gradients of an affine
// layer.
#pragma once
#include "framework/autograd/tape.h"
#include "framework/autograd/trace.h"
#include "framework/tensor/launch.h"
#include "framework/tensor/shard_spec.h"
#include "kernels/contracts/elementwise.h"
#include "kernels/contracts/move.h"

namespace trireme::ops {

/// Same elements under another shape, for kernels: no handle, not recorded.
inline View shaped(const Tensor& t, const Shape& shape) {
  View v = t.view();
  v.shape = shape;
  return v;
}
/// All axes but the last as one: [rows, C].
inline Shape as_rows(const Shape& s) { return {s.product(0, s.rank() - 1), s[-1]}; }
/// A weight follows the type of the data it meets, by a recorded cast: its gradient arrives in its own type.
inline Tensor in_type(const Tensor& weight, DType type) { return weight ? weight.to(type) : weight; }
/// Weight and bias of a convolution or a linear layer. f32 weights under bf16 or f16 data (master weights, Micikevicius
/// et al., arXiv 1710.03740) are rounded for the products, and get their gradients in f32, unrounded; kernels take the
/// bias as it is. Any other type is a recorded cast.
struct Weights {
  Tensor w,       ///< for the kernels: of the data's dtype
      bias;       ///< for the kernels: of the data's dtype, or f32 beside bf16 and f16; undefined without one
  Tensor leaf_w,  ///< for the tape: the weight, or its recorded cast
      leaf_bias;  ///< for the tape
  /// type: dtype of the data. bias_given may be undefined.
  Weights(const Tensor& weight, const Tensor& bias_given, DType type) {
    if (is_half(type) && weight.dtype() == DType::f32 && (!bias_given || bias_given.dtype() == DType::f32)) {
      const NoGrad rounding;
      w = weight.to(type), bias = bias_given;
      leaf_w = weight, leaf_bias = bias_given;
    } else {
      w = leaf_w = in_type(weight, type), bias = leaf_bias = in_type(bias_given, type);
    }
  }
};
/// Statistics and losses are kept in f32, and in f64 for f64 data.
inline DType accumulator(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

/// Throws Error naming op where x is undefined or of an integer dtype.
void check_float(const char* op, const Tensor& x);
/// Throws Error naming op where a or b is undefined, or their dtypes differ.
void check_same_type(const char* op, const Tensor& a, const Tensor& b);
/// Throws Error naming op unless t, called `what` in the message, is [channels], or undefined where it is optional.
void check_channels(const char* op, const char* what, const Tensor& t, Index channels, bool optional);

/// The result of an op of which each element depends on the same element of x, and on whole axes of x that
/// check_whole() has seen: of x's shape, dtype, device and division over ranks (framework/tensor/shard_spec.h),
/// contents undefined. An op that makes its result otherwise is refused on a part of a tensor. Throws Error for an
/// undefined tensor.
inline Tensor part_like(const Tensor& x) {
  Tensor y = Tensor::like(x);
  y.impl()->shard_spec = x.impl()->shard_spec;
  return y;
}
/// Throws Error naming op where other ranks hold the rest of one of x's axes [first, end), which count from the first.
void check_whole(const char* op, const Tensor& x, int first, int end);

/// Throws Error naming op where it combines the rows of a training step's batch along x's axis `axis` (from the first)
/// and this rank has a part of them: every number of ranks would give another result.
void refuse_part_of_batch(const char* op, const Tensor& x, int axis);

/// The axis counted from the first. Throws Error naming op where there is none.
int axis_of(const char* op, int axis, int rank);
/// The shape that a and b broadcast to. Throws Error naming op where they do not.
Shape broadcast(const char* op, const Shape& a, const Shape& b);
/// t, of which a Trace knows that it is the same whatever the batch.
Tensor constant(const Tensor& t);
/// A constant() scalar of x's dtype and device. Throws Error naming op where an integer dtype does not have the number.
Tensor number_like(const char* op, const Tensor& x, double number);

/// Whether a Trace records every op, on the tape or not.
inline bool is_traced() { return is_recorded_or_traced({}); }
/// What make() computes by other ops; to a Trace one op of this name.
template <class F>
Tensor as_one_op(const char* op, std::initializer_list<const Tensor*> inputs, detail::OpOptions options, F&& make) {
  if (!is_traced()) return make();
  Tensor y;
  {
    const Trace parts;
    y = make();
  }
  std::vector<Tensor> given;
  for (const Tensor* t : inputs) given.push_back(*t);
  return record(op, std::move(y), std::move(given), options, Backward{});
}
/// Options of a reduction in a Trace.
struct ReducedAxes {
  std::vector<int> axes;  ///< negative ones count from the last
  bool keep;              ///< with extent 1
};

/// y = F(a, b), not recorded: F is a binary formula without parameters.
template <class F, class A, class B>
void zip_into(const Tensor& y, const A& a, const B& b) {
  launch<kernel::Zip<F>>(y, a, b, F{});
}
/// to = from summed over the axes along which `to` was broadcast.
void sum_to(const Tensor& to, const Tensor& from);

/// y = relu(before), already computed by a fused kernel: puts the masking of dy on the tape.
Tensor record_relu(Tensor y, const Tensor& before);

/// Gradients of weight (input w) and bias (input b) by one kernel call
/// kernel(View dw, View dbias, bool accumulate). rows [N, O] is dy; without rows the gradients are zero.
template <class F>
void give_weight_and_bias(Gradients& to, int w, int b, const View& rows, F&& kernel) {
  if (!to.needs_grad(w)) {
    return write_grad(to, b, [&](const Tensor& db) {
      if (rows.numel() == 0) return launch<kernel::Fill>(db, 0.0);
      launch<kernel::Reduce>(shaped(db, {1, db.numel()}), rows, ReduceKind::sum);
    });
  }
  const Gradients::Target dw = to.grad_buffer(w);
  const Gradients::Target db = to.needs_grad(b) ? to.grad_buffer(b) : Gradients::Target{{}, dw.accumulate};
  if (rows.numel() == 0) {
    for (const auto* t : {&dw, &db})
      if (t->tensor && !t->accumulate) launch<kernel::Fill>(t->tensor, 0.0);
    return;
  }
  if (dw.accumulate == db.accumulate) return kernel(dw.tensor.view(), db.tensor.view(), dw.accumulate);
  // One of the two holds something already: a fresh pair, added where needed.
  const Tensor fresh_w = dw.accumulate ? Tensor::like(dw.tensor) : dw.tensor;
  const Tensor fresh_b = db.accumulate ? Tensor::like(db.tensor) : db.tensor;
  kernel(fresh_w.view(), fresh_b.view(), false);
  if (dw.accumulate) add_into(dw.tensor, fresh_w);
  if (db.accumulate) add_into(db.tensor, fresh_b);
}

}  // namespace trireme::ops
