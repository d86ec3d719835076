// Mixed-scale dense layers of an image that is split over ranks: each rank's block has room for a halo as wide as the
// largest dilation; behind each layer the new channels' halo travels, and in backward that of their gradient.
#include "framework/ops/mixed_scale.h"

#include "parallel/split/sharded_ops.h"

namespace trireme {
namespace {

class RankHalo final : public MixedScaleHalo {
 public:
  /// Of this rank's box of `has`, up to `reach` cells wide.
  RankHalo(const ShardedOps& has, Index reach)
      : has_(has.shared_from_this()), line_(has.grid().line(spatial_axes(has))), boxes_(has.boxes(line_)) {
    const Box mine = boxes_[static_cast<std::size_t>(line_.me)], wide = widened(mine, reach);
    room = wide.size;
    begin = from(mine.at, wide.at);
    origin_ = wide.at;
  }

  void exchange(const Tensor& block, Index first, Index count, Index reach) const override {
    std::vector<Box> have = boxes_, want;
    for (Box& box : have) {
      box.at[-1] = first;
      box.size[-1] = count;
      want.push_back(widened(box, reach));
    }
    Exchange exchange(has_->grid(), line_, route(have, want, line_.me), block, origin_, MemoryKind::halos);
    for (const auto& [box, values] : exchange.wait()) copy_box(block, origin_, values, box.at, box);
  }

 private:
  /// So many cells more on all sides, as far as the image goes.
  Box widened(Box box, Index reach) const {
    for (int axis = 1; axis < box.at.rank() - 1; ++axis) {
      const Index end = std::min(has_->global_shape()[axis], box.at[axis] + box.size[axis] + reach);
      box.at[axis] = std::max<Index>(0, box.at[axis] - reach);
      box.size[axis] = end - box.at[axis];
    }
    return box;
  }

  ShardedOps::Ptr has_;
  Grid::Line line_;
  std::vector<Box> boxes_;  // the ranks' own
  Shape origin_;            // of the block
};

}  // namespace

Tensor ShardedOps::mixed_scale_dense(const Tensor& x, const std::vector<Tensor>& w, const std::vector<Tensor>& bias,
                                     const std::vector<Index>& dilations) const {
  const Ptr sx = of(x);
  Shape whole = sx->global_shape();
  const Layout layout = sx->layout_.with(x.rank() - 1, Layout::none);
  const Ptr has = sx->with(whole, layout);
  const Tensor in = plain(relayout(x, *has));
  // Filters that are divided over channels come together: each rank makes all channels of its cells.
  const auto of_all = [&](const std::vector<Tensor>& weights) {
    std::vector<Tensor> all;
    for (const Tensor& t : weights)
      all.push_back(t ? weight(relayout(t, *with(of(t)->global_shape(), {})), layout.axes()) : t);
    return all;
  };
  const std::vector<Tensor> filters = of_all(w), shifts = of_all(bias);
  std::shared_ptr<const MixedScaleHalo> halo;
  if (spatial_axes(*has) != 0 && !dilations.empty())
    halo = std::make_shared<RankHalo>(*has, *std::max_element(dilations.begin(), dilations.end()));
  const Tensor y = trireme::mixed_scale_dense(in, filters, shifts, dilations, std::move(halo));
  whole[-1] = y.dim(-1);
  return sx->put(y, whole, layout);
}

}  // namespace trireme
