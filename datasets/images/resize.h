// Resizing a part of decoded pixels: bilinear, antialiased (a triangle filter as wide as the scale, as PIL's).
#pragma once
#include "datasets/images/crop.h"
#include "datasets/images/pixel_block.h"

namespace trireme {

/// Keeps its tables and room from image to image. Not for several threads at once.
class Resizer {
 public:
  /// Writes the crop of the block's image to [height, width, channels], mirrored if it says so. Pixels outside the crop
  /// count only if it is not bounded.
  void operator()(const PixelBlock&, const Crop&, Index height, Index width, std::uint8_t* to);

 private:
  /// Output i mixes the inputs begin[i] + j by weights[i * most + j], j < most; most is one number for all, and weights
  /// that are not needed are 0.
  struct Filter {
    Index most = 0;
    std::vector<Index> begin;
    std::vector<float> weights;
    void fill(double first, double extent, Index low, Index high, Index outputs);
    void mirror();  ///< the last output becomes the first
  };
  Filter across_, down_;
  std::vector<float> from_, to_;  // one row on its way
};

}  // namespace trireme
