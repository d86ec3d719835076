// DenseNet: a mixed-scale dense network (Pelt and Sethian, PNAS 115(2), 2018) over a volume. Its layers write in place
// into one block of features. The bits of the result do not depend on the tiling.
#pragma once
#include <string>
#include <vector>

#include "framework/layers/module.h"
#include "parallel/inference/volume_net.h"

namespace trireme {

/// The layers, as in framework/ops/mixed_scale.h, and the layers after them.
struct DenseLayers {
  std::vector<Tensor> weight,
      bias;                      ///< per layer [outputs, 3, 3(, 3), channels before it]; bias [outputs] or undefined
  std::vector<Index> dilations;  ///< per layer, in cells
  Module tail;                   ///< acts on single voxels: [1, spatial..., all channels] -> [1, spatial..., C']
};

class DenseNet final : public VolumeNet {
 public:
  /// Throws Error for layers whose channels do not match, and for a tail that reads neighbouring voxels.
  DenseNet(DenseLayers, const Shape& volume, DType);

  int layers() const override { return static_cast<int>(net_.weight.size()); }
  Index channels(int layers) const override { return channels_[static_cast<std::size_t>(layers)]; }
  Box reads(int first, int last, const Box& out) const override;
  BoxCost cost(int first, int last, const Box& out) const override;
  Tensor run(int first, int last, const ReadBox& read, const Box& out) const override;
  Box share(const Division&, const Extents& at) const override;
  ShareCost cost(const Division&) const override;
  std::vector<ShareStep> steps(const Division&, const std::vector<Extents>& places) const override;
  Tensor run(const Division&, const Grid&, const ReadBox& read) const override;

 private:
  static constexpr Index piece = 4096;      // voxels per call of the tail; constant, so that the bits stay the same
  static constexpr double slab = 16 << 20;  // bytes read at a time
  /// The box enlarged by `cells` on all sides, within the volume.
  Box grown(const Box&, Index cells) const;
  Box of_channels(Box, Index first, Index last) const;
  Index cells_between(int first, int last) const {  // reach of these layers
    return reaches_[static_cast<std::size_t>(last)] - reaches_[static_cast<std::size_t>(first)];
  }
  Index farthest(int first) const { return farthest_[static_cast<std::size_t>(first)]; }
  double bytes(const Box&) const;
  void fill(const Tensor& block, const Box& at, const Box& in, const ReadBox& read) const;
  /// Computes layer i in box `out` of the block at `at`.
  void run_layer(int i, const Tensor& block, const Box& at, const Box& out) const;
  Tensor run_tail(const Tensor& block, const Box& at, const Box& out) const;
  double operations(int i, const Box& out) const;

  DenseLayers net_;
  std::vector<Index> channels_;    // before each layer, and after the last
  std::vector<Index> reaches_{0};  // sum of the dilations before each layer, and of all
  std::vector<Index> farthest_;    // largest dilation from each layer on
  double tail_operations_ = 0;     // per voxel
};

}  // namespace trireme
