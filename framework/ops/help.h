// Helpers that ops share: weights in the data's type, gradients of broadcast operands, gradients of affine layers.
#pragma once
#include "framework/autograd/tape.h"
#include "framework/autograd/trace.h"
#include "framework/tensor/launch.h"
#include "framework/tensor/shard_spec.h"
#include "kernels/contracts/elementwise.h"
#include "kernels/contracts/move.h"

namespace trireme::ops {

/// The elements of t with another shape, for kernels: no new tensor, not recorded.
inline View shaped(const Tensor& t, const Shape& shape) {
  View v = t.view();
  v.shape = shape;
  return v;
}
/// The shape [rows, C], where rows is the product of all axes but the last.
inline Shape as_rows(const Shape& s) { return {s.product(0, s.rank() - 1), s[-1]}; }
/// The shape of the whole tensor: x's own, unless ranks hold parts of x.
inline const Shape& global_shape(const Tensor& x) { return x.global_shape(); }
/// The weight in the data's type, by a recorded cast: its gradient has the weight's own type.
inline Tensor in_type(const Tensor& weight, DType type) { return weight ? weight.to(type) : weight; }
/// Weight and bias of a convolution or a linear layer. With bf16 or f16 data, f32 weights (master weights, Micikevicius
/// et al., arXiv 1710.03740) are rounded for the products and get unrounded f32 gradients; kernels use the f32 bias as
/// it is. Other types are converted by a recorded cast.
struct Weights {
  Tensor w,       ///< for kernels: in the data's dtype
      bias;       ///< for kernels: in the data's dtype, or f32 with bf16 and f16 data; undefined if there is none
  Tensor leaf_w,  ///< for the tape: the weight, or its recorded cast
      leaf_bias;  ///< for the tape: the bias, or its recorded cast
  /// type: dtype of the data. bias_given may be undefined.
  Weights(const Tensor& weight, const Tensor& bias_given, DType type) {
    if (is_half(type) && weight.dtype() == DType::f32 && (!bias_given || bias_given.dtype() == DType::f32)) {
      const NoGrad rounding;
      w = weight.to(type);
      bias = bias_given;
      leaf_w = weight;
      leaf_bias = bias_given;
    } else {
      w = leaf_w = in_type(weight, type);
      bias = leaf_bias = in_type(bias_given, type);
    }
  }
};
/// The type of statistics and losses: f64 for f64 data, else f32.
inline DType accumulator(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

/// Throws Error naming op if x is undefined or has an integer dtype.
void check_float(const char* op, const Tensor& x);
/// Throws Error naming op if a or b is undefined, or if their dtypes differ.
void check_same_type(const char* op, const Tensor& a, const Tensor& b);
/// Throws Error naming op unless t is [channels], or undefined if optional. what: the name of t in the message.
void check_channels(const char* op, const char* what, const Tensor& t, Index channels, bool optional);

/// An uninitialised result for an op whose elements each depend on the same element of x, and on no other. It has x's
/// shape, dtype, device and division over ranks (framework/tensor/shard_spec.h). Ops that create results otherwise
/// reject divided tensors. Throws Error for an undefined tensor.
inline Tensor part_like(const Tensor& x) {
  Tensor y = Tensor::like(x);
  y.impl()->shard_spec = x.impl()->shard_spec;
  return y;
}

/// Throws Error naming op if it combines rows of a training step's batch along x's axis `axis` (from the first) and
/// this rank has only part of them: the result would depend on the number of ranks.
void refuse_part_of_batch(const char* op, const Tensor& x, int axis);

/// The axis counted from the first. Throws Error naming op if it does not exist.
int axis_of(const char* op, int axis, int rank);
/// The shape to which a and b broadcast. Throws Error naming op if they do not.
Shape broadcast(const char* op, const Shape& a, const Shape& b);
/// t, marked for a Trace as independent of the batch.
Tensor constant(const Tensor& t);
/// A constant() scalar of x's dtype and device. Throws Error naming op if an integer dtype cannot represent the number.
Tensor number_like(const char* op, const Tensor& x, double number);

/// Whether a Trace records every op, on the tape or not.
inline bool is_traced() { return is_recorded_or_traced({}); }
/// The result of make(), which calls other ops. A Trace records one op of this name instead.
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
/// Options of a reduction, for a Trace.
struct ReducedAxes {
  std::vector<int> axes;  ///< negative axes count from the last
  bool keep;              ///< reduced axes stay with extent 1
};

/// y = F(a, b), not recorded. F: a binary formula without parameters.
template <class F, class A, class B>
void zip_into(const Tensor& y, const A& a, const B& b) {
  launch<kernel::Zip<F>>(y, a, b, F{});
}
/// to = the sum of from over the axes along which `to` was broadcast.
void sum_to(const Tensor& to, const Tensor& from);

/// t summed over the axes along which a tensor of that shape was broadcast to t's; recorded.
Tensor summed_to(const Tensor& t, const Shape& shape);
/// For Gradients::records(): gives input i the recorded gradient make(), summed over its broadcast axes.
template <class F>
void give_recorded(Gradients& g, int i, F&& make) {
  if (g.needs_grad(i)) g.set_grad(i, summed_to(make(), g.input(i).shape));
}
/// A backward of one half that follows Gradients::records(), unless `does` is false.
template <class F>
Backward twice(F&& backward, bool does = true) {
  return {.inputs = BackwardFn(std::forward<F>(backward)), .twice = does};
}
/// t as a part from `begin` along an axis, within zeros of that shape; recorded.
Tensor padded(const Tensor& t, int axis, Index begin, const Shape& shape);
/// Writes out = a linear function of in, not recorded.
using LinearMap = std::function<void(const Tensor& out, const Tensor& in)>;
/// map(x), recorded; transposed: the transpose of map, by which its backward works.
Tensor linear_map(const char* op, const Tensor& x, const Gradients::InputType& out, LinearMap map,
                  LinearMap transposed);

/// log_p, which is log_softmax(x) already, recorded as such. x may have other elements (Gradients::zeros_for()).
Tensor as_log_softmax(const Tensor& log_p, const Tensor& x);

/// Records the ReLU of a fused kernel: y = relu(before) is computed already.
Tensor record_relu(Tensor y, const Tensor& before);

/// Computes the gradients of weight (input w) and bias (input b) by one call kernel(View dw, View dbias, bool
/// accumulate). rows [N, O]: dy; without rows the gradients are zero.
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
  // One of the two already has a value: compute a new pair, and add it where needed.
  const Tensor fresh_w = dw.accumulate ? Tensor::like(dw.tensor) : dw.tensor;
  const Tensor fresh_b = db.accumulate ? Tensor::like(db.tensor) : db.tensor;
  kernel(fresh_w.view(), fresh_b.view(), false);
  if (dw.accumulate) add_into(dw.tensor, fresh_w);
  if (db.accumulate) add_into(db.tensor, fresh_b);
}

}  // namespace trireme::ops
