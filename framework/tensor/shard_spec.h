// ShardSpec: how a tensor is divided over ranks (compare PyTorch's DTensor): the local block is a box of a global
// tensor. Ops whose result depends on other ranks' blocks delegate to its virtual functions; elementwise ops pass it
// on. The framework knows no ranks; parallel/split derives from this class.
#pragma once
#include <functional>
#include <vector>

#include "framework/tensor/tensor.h"
#include "kernels/contracts/conv.h"
#include "kernels/contracts/move.h"
#include "kernels/contracts/pool.h"

namespace trireme {

struct BatchNormOptions;  // framework/ops/ops.h

/// Shared and immutable: all tensors of one division may point to one ShardSpec. A weight may have one too: it says
/// which part of the weight is here, or (box = whole) that others hold the same weight and how its gradient is counted.
class ShardSpec {
 public:
  using Unary = std::function<Tensor(const Tensor&)>;
  using Binary = std::function<Tensor(const Tensor&, const Tensor&)>;

  virtual ~ShardSpec() = default;
  const Shape& global_shape() const { return global_shape_; }  ///< of the tensor that all hold together
  const Shape& offset() const { return offset_; }              ///< where this block begins in it

  // Each equals its namesake in framework/ops/ops.h on the whole tensors. Any operand may be spread, and may lie
  // elsewhere than this one; the results are spread, or whole. They are recorded, and all holders must call them
  // together.
  virtual Tensor conv(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvOptions&,
                      const Tensor& residual) const = 0;
  /// local: the pooling op, for a box of the image with the padding that lies at its borders.
  virtual Tensor pool(const Tensor& x, const PoolOptions&,
                      const std::function<Tensor(const Tensor&, const PoolOptions&)>& local) const = 0;
  /// max_pool(relu(x + bias)) of windows that tile the image.
  virtual Tensor bias_relu_pool(const Tensor& x, const Tensor& bias, const PoolOptions&) const = 0;
  /// [N, spatial..., C] -> [N, C].
  virtual Tensor global_pool(const Tensor& x, ReduceKind) const = 0;
  virtual Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias, bool relu) const = 0;
  virtual Tensor batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                            const Tensor& running_var, const BatchNormOptions&, const Tensor& residual) const = 0;
  virtual Tensor dropout(const Tensor& x, double p, std::uint64_t layer) const = 0;
  virtual Tensor flatten(const Tensor& x) const = 0;
  /// local of two operands that broadcast to one shape, element by element.
  virtual Tensor zip(const Tensor& a, const Tensor& b, const Binary& local) const = 0;
  /// The whole tensor, the same for every holder.
  virtual Tensor gather(const Tensor& x) const = 0;
  /// Of a number that each holder has for its own part (a sum of squares): the whole tensor's.
  virtual double sum(double part) const = 0;
  /// Room for the largest part that a holder has, in elements: what a flat block sets aside, so that it is laid out
  /// alike everywhere.
  virtual Index max_local_numel() const = 0;

 protected:
  ShardSpec(const Shape& global_shape, const Shape& offset) : global_shape_(global_shape), offset_(offset) {}

 private:
  Shape global_shape_, offset_;
};

/// Whether others hold the rest of a tensor.
inline bool is_part(const Tensor& t) { return t.shard_spec() && !(t.shape() == t.shard_spec()->global_shape()); }

namespace ops {
/// The first of the tensors that is spread, or null.
inline const ShardSpec* shard_spec_of(std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* t : tensors)
    if (const ShardSpec* s = t->shard_spec()) return s;
  return nullptr;
}
}  // namespace ops
}  // namespace trireme
