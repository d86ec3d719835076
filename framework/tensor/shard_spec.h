// ShardSpec: the division of a tensor over ranks (compare PyTorch's DTensor). The local block is a box of a global
// tensor. Ops whose result depends on other ranks' blocks call its virtual functions; elementwise ops pass it on. The
// framework knows no ranks: parallel/split implements this class.
#pragma once
#include <functional>
#include <vector>

#include "framework/tensor/tensor.h"
#include "kernels/contracts/conv.h"
#include "kernels/contracts/move.h"
#include "kernels/contracts/pool.h"

namespace trireme {

struct BatchNormOptions;  // framework/ops/ops.h

/// Shared and immutable: all tensors of one division may point to one ShardSpec. A weight may have one too. Then it
/// says which part of the weight is here, or (box = whole) that other ranks have the same weight and how its gradient
/// is summed.
class ShardSpec {
 public:
  using Unary = std::function<Tensor(const Tensor&)>;                  ///< an op on one tensor
  using Binary = std::function<Tensor(const Tensor&, const Tensor&)>;  ///< an op on two tensors, for zip()

  virtual ~ShardSpec() = default;
  const Shape& global_shape() const { return global_shape_; }  ///< of the whole tensor over all ranks
  const Shape& offset() const { return offset_; }              ///< position of this block in the global tensor

  // Each function equals the function of the same name in framework/ops/ops.h on global tensors. Any operand may be
  // sharded, also by another division; results are sharded or whole. All are recorded, and collective: every holder of
  // a shard makes the same call.
  /// ops conv(): x [N, spatial..., I], w [O, kernel..., I/groups]. Collective.
  virtual Tensor conv(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvOptions&,
                      const Tensor& residual) const = 0;
  /// ops conv_transpose(): x [N, spatial..., I], w [I, kernel..., O/groups]. Collective.
  virtual Tensor conv_transpose(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvOptions&,
                                const Extents& output_pad) const = 0;
  /// ops mixed_scale_dense() (framework/ops/mixed_scale.h): x [N, spatial..., C]. Collective.
  virtual Tensor mixed_scale_dense(const Tensor& x, const std::vector<Tensor>& w, const std::vector<Tensor>& bias,
                                   const std::vector<Index>& dilations) const = 0;
  /// ops concat(); axis >= 0. Throws Error for weights among the parts. Collective.
  virtual Tensor concat(const std::vector<Tensor>& parts, int axis) const = 0;
  /// max_pool() or avg_pool(). local is that op for a box of the image, with the padding at its borders. Collective.
  virtual Tensor pool(const Tensor& x, const PoolOptions&,
                      const std::function<Tensor(const Tensor&, const PoolOptions&)>& local) const = 0;
  /// max_pool(relu(x + bias)) with windows that tile the image. Collective.
  virtual Tensor bias_relu_pool(const Tensor& x, const Tensor& bias, const PoolOptions&) const = 0;
  /// global_avg_pool() or global_max_pool(): [N, spatial..., C] -> [N, C]. Collective.
  virtual Tensor global_pool(const Tensor& x, ReduceKind) const = 0;
  /// ops linear(), with its weight divided by rows or columns as in Megatron-LM (arXiv 1909.08053). Collective.
  virtual Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias, bool relu) const = 0;
  /// ops batch_norm(), with statistics also over the ranks that have other cells of the same images. Collective.
  virtual Tensor batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                            const Tensor& running_var, const BatchNormOptions&, const Tensor& residual) const = 0;
  /// ops dropout(): this block's part of the global tensor's mask.
  virtual Tensor dropout(const Tensor& x, double p, std::uint64_t layer) const = 0;
  /// ops flatten(): [N, spatial..., C] -> [N, C * spatial], divided over N at most. Collective.
  virtual Tensor flatten(const Tensor& x) const = 0;
  /// A binary elementwise op; local computes it on blocks of the same position. Throws Error unless the operands
  /// broadcast to the shape of one of them. Collective.
  virtual Tensor zip(const Tensor& a, const Tensor& b, const Binary& local) const = 0;
  /// All-gather: the whole tensor, the same on every holder. Collective.
  virtual Tensor gather(const Tensor& x) const = 0;
  /// All-reduce of a number that each holder has for its own part (such as a sum of squares). Collective.
  virtual double sum(double part) const = 0;
  /// Number of elements of the largest shard of all holders. A flat buffer reserves that many, so that its layout is
  /// the same on all ranks. No communication.
  virtual Index max_local_numel() const = 0;
  /// A weight [C] that an op needs whole for this rank's part of x, as a plain tensor. Its gradient is this rank's
  /// share of the sum that the plan computes. Undefined stays undefined. Collective if ranks have parts of w.
  virtual Tensor weight(const Tensor& w, const Tensor& x) const = 0;
  /// Ones of x's type and batch, divided as x is. whole: global shape, whose extents are x's or 1.
  virtual Tensor ones(const Tensor& x, const Shape& whole) const = 0;
  /// Whether ranks have different parts of the tensor; false: each holder has all of it.
  virtual bool divides() const = 0;

 protected:
  /// offset: first cell of this block in the global tensor, one number per axis.
  ShardSpec(const Shape& global_shape, const Shape& offset) : global_shape_(global_shape), offset_(offset) {}

 private:
  Shape global_shape_, offset_;
};

/// Whether other ranks have the rest of a tensor.
inline bool is_part(const Tensor& t) { return t.shard_spec() && !(t.shape() == t.shard_spec()->global_shape()); }

namespace ops {
/// The ShardSpec of the first sharded tensor, or null.
inline const ShardSpec* shard_spec_of(std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* t : tensors)
    if (const ShardSpec* s = t->shard_spec()) return s;
  return nullptr;
}
}  // namespace ops
}  // namespace trireme
