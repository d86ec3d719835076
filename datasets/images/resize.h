// Resizer: resizes a part of decoded pixels, bilinear and antialiased (a triangle filter as wide as the scale, as in
// PIL).
#pragma once
#include "datasets/images/crop.h"
#include "datasets/images/pixel_block.h"

namespace trireme {

/// Reuses its tables and memory for later images. For one thread.
class Resizer {
 public:
  /// Resizes the crop of the block's image to `to` [height, width, channels], flipped if crop.flip. Pixels outside the
  /// crop have an effect only if it is not bounded.
  void operator()(const PixelBlock&, const Crop&, Index height, Index width, std::uint8_t* to);

 private:
  /// Output i is the sum of the inputs begin[i] + j times weights[i * most + j], for j < most; unused weights are 0.
  struct Filter {
    Index most = 0;
    std::vector<Index> begin;
    std::vector<float> weights;
    void fill(double first, double extent, Index low, Index high, Index outputs);
    void mirror();  ///< reverses the outputs
  };
  Filter across_, down_;
  std::vector<float> from_, to_;  // one row in progress
};

}  // namespace trireme
