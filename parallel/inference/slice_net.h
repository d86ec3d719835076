// SliceNet: a 2-D model applied to each slice of a volume.
#pragma once
#include <memory>

#include "parallel/inference/volume_net.h"

namespace trireme {

class SliceNet final : public VolumeNet {
 public:
  /// net: for [1, H, W, C], with two spatial axes. The SliceNet is for [1, slices, H, W, C]. Throws Error for a net
  /// with three spatial axes, and for fewer than 1 slice.
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
  /// Slice by slice: run(read) computes a box of one slice of `out`.
  template <class Run>
  Tensor each_slice(const ReadBox& read, const Box& out, Run&& run) const;
  double bytes(const Box&) const;

  std::shared_ptr<const VolumeNet> net_;
};

}  // namespace trireme
