// SliceNet: a model of pictures over a volume, each slice by itself.
#pragma once
#include <memory>

#include "parallel/inference/volume_net.h"

namespace trireme {

class SliceNet final : public VolumeNet {
 public:
  /// net: of [1, H, W, C], of two spatial axes. This one: of [1, slices, H, W, C]. Throws Error for a net of volumes
  /// and for slices below 1.
  SliceNet(std::shared_ptr<const VolumeNet> net, Index slices);

  int layers() const override { return net_->layers(); }
  Index channels(int layers) const override { return net_->channels(layers); }
  Box reads(int first, int last, const Box& out) const override;
  BoxCost cost(int first, int last, const Box& out) const override;
  Tensor run(int first, int last, const ReadBox& read, const Box& out) const override;
  Box share(const Division&, const Extents& at) const override;
  ShareCost cost(const Division&) const override;
  std::vector<ShareStep> steps(const Division&, const std::vector<Extents>& places) const override;
  Tensor run(const Division&, const Grid&, const ReadBox& read) const override;

 private:
  /// Slice by slice: run(read) makes a box of one of the slices of `out`.
  template <class Run>
  Tensor each_slice(const ReadBox& read, const Box& out, Run&& run) const;
  double bytes(const Box&) const;

  std::shared_ptr<const VolumeNet> net_;
};

}  // namespace trireme
