// ShardedOps: this rank's box of a tensor that the ranks of a Grid have together, and the ops on such tensors. Each op
// brings its operands into the layout that it can work on (relayout), works on this rank's boxes with the ordinary ops,
// and says in which layout the result lies. So layers never meet a rank, and a model needs no rewriting.
//
// Gradients lie as their tensors do. Where ranks hold copies of a tensor, each has its whole gradient; a weight that
// ranks use on different data gets a share of its gradient on each, and those are summed by the plan
// (Grid::grad_reduce_axes).
#pragma once
#include <array>

#include "framework/ops/ops.h"
#include "framework/tensor/shard_spec.h"
#include "parallel/split/grid.h"

namespace trireme {

/// Which axis of the grid each axis of a tensor is divided over; along the others ranks hold copies.
struct Layout {
  static constexpr int none = -1;
  std::array<int, Shape::max_rank> over{none, none, none, none, none, none};
  int operator[](int axis) const { return over[axis]; }
  int& operator[](int axis) { return over[axis]; }
  /// The same, but for one axis of the tensor.
  Layout with(int axis, int grid_axis) const;
  AxisMask axes() const;  ///< those of the grid that divide something
  bool operator==(const Layout&) const = default;
};

/// The block without its ShardSpec; undefined stays undefined.
inline Tensor plain(const Tensor& t) { return t ? t.with_shard_spec({}) : t; }

class ShardedOps final : public ShardSpec, public std::enable_shared_from_this<ShardedOps> {
 public:
  using Ptr = std::shared_ptr<const ShardedOps>;
  /// rows: where the shares of axis 0 of the grid's only axis begin, and the end; empty: by even_share(), as on all
  /// other axes.
  static Ptr make(std::shared_ptr<const Grid>, const Shape& whole, const Layout&, std::vector<Index> rows = {});

  /// Of a weight: the plan sums its gradient over Grid::grad_reduce_axes().
  static Ptr of_weight(std::shared_ptr<const Grid>, const Shape& whole, const Layout&);

  const Layout& layout() const { return layout_; }
  const Grid& grid() const { return *grid_; }
  std::shared_ptr<const Grid> shared_grid() const { return grid_; }
  Box box() const { return box(grid_->at()); }
  Box box(const std::vector<int>& coordinates) const;
  std::vector<Box> boxes(const Grid::Line&) const;
  /// Of another extent or layout over the same grid.
  Ptr with(const Shape& whole, const Layout&) const;
  /// The shard of t: its ShardSpec, or one that divides nothing.
  Ptr of(const Tensor& t) const;

  Tensor conv(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvOptions&,
              const Tensor& residual) const override;
  Tensor conv_transpose(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvOptions&,
                        const Extents& output_pad) const override;
  Tensor concat(const std::vector<Tensor>& parts, int axis) const override;
  Tensor pool(const Tensor& x, const PoolOptions&,
              const std::function<Tensor(const Tensor&, const PoolOptions&)>& local) const override;
  Tensor bias_relu_pool(const Tensor& x, const Tensor& bias, const PoolOptions&) const override;
  Tensor global_pool(const Tensor& x, ReduceKind) const override;
  Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias, bool relu) const override;
  Tensor batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                    const Tensor& running_var, const BatchNormOptions&, const Tensor& residual) const override;
  Tensor dropout(const Tensor& x, double p, std::uint64_t layer) const override;
  Tensor zip(const Tensor& a, const Tensor& b, const Binary& local) const override;
  Tensor flatten(const Tensor& x) const override;
  Tensor mixed_scale_dense(const Tensor& x, const std::vector<Tensor>& w, const std::vector<Tensor>& bias,
                           const std::vector<Index>& dilations) const override;
  Tensor weight(const Tensor& w, const Tensor& x) const override;
  Tensor ones(const Tensor& x, const Shape& whole) const override;
  bool divides() const override { return layout_.axes() != 0; }
  Tensor gather(const Tensor& x) const override;
  double sum(double part) const override;
  Index max_local_numel() const override;

 private:
  ShardedOps(std::shared_ptr<const Grid>, const Shape& whole, const Layout&, std::vector<Index> rows, const Box& mine);
  std::pair<Index, Index> range(int axis, int index) const;  // [begin, end) of a divided axis
  /// y, this rank's block of a tensor that lies so; without a ShardSpec where nothing is divided.
  Tensor put(const Tensor& y, const Shape& whole, const Layout&) const;
  /// A weight as an op reads it whose data is divided over `axes`: of the ranks that find the same share of its
  /// gradient all but one find zeros.
  Tensor weight(const Tensor& w, AxisMask axes) const;
  /// The same, brought into a layout. Where the plan sums the weight's gradient, a rank finds that of its block alone.
  Tensor weight(const Tensor& w, const Layout&, AxisMask axes) const;
  Tensor samples(const Tensor& x) const;
  /// The layout of x for a window op whose output is `whole`: of an axis with fewer outputs than ranks, from here on
  /// each rank has the whole.
  Layout for_outputs(const Shape& whole) const;
  struct Product;
  /// transposed: w is [I, ..., O] instead of [O, ..., I].
  Product product(const Tensor& x, const Tensor& w, const Tensor& bias, bool transposed = false) const;

  std::shared_ptr<const Grid> grid_;
  Layout layout_;
  std::vector<Index> rows_;
  bool weight_ = false;
};

/// The grid's axes that divide x's spatial axes.
AxisMask spatial_axes(const ShardedOps& x);
/// What each rank of the line has of a window layer's input, and what its box of the output reads. transposed: of the
/// convolution that transposes these windows.
struct Halo {
  std::shared_ptr<const Grid> grid;
  Grid::Line line;  // along the axes that divide the input
  std::vector<Box> have, want;
  Halo(const ShardedOps& has, const ShardedOps& out, const std::vector<Window>&, bool transposed = false);
};

// Recorded moves of tensors between layouts. Collective calls of the ranks concerned.

/// x in another layout of the same whole. Its gradient comes in the new layout and goes back into the old one.
Tensor relayout(const Tensor& x, const ShardedOps& to);
/// Megatron's f (arXiv 1909.08053, 3): x, a copy, which each rank along `axes` uses in its own way; backward sums the
/// gradients.
Tensor copy_to_parallel(const Tensor& x, const std::shared_ptr<const Grid>&, AxisMask axes);
/// Megatron's g: the sum of x over the ranks along `axes`, made in place: nobody else reads x. Backward is the
/// identity.
Tensor reduce_from_parallel(const Tensor& x, const Grid&, AxisMask axes);
/// Halo exchange: of x, this rank's block, what the rank wants of the whole, as a plain tensor; wants may overlap: what
/// comes back adds up.
Tensor halo_exchange(const Tensor& x, const Halo&);
/// conv of x, this rank's block of `has`, of which the outputs go to `out`; w and bias are plain. The convolution of
/// what needs no halo runs while the halo travels.
Tensor halo_conv(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvOptions&, const ShardedOps& has,
                 const ShardedOps& out);

}  // namespace trireme
