// Arithmetic of window layers that are divided over ranks: which part of the input a box of the output reads. Pure
// functions.
#pragma once
#include <vector>

#include "framework/tensor/box.h"
#include "kernels/contracts/conv.h"
#include "kernels/contracts/pool.h"

namespace trireme {

/// A convolution's or a pooling's window along one axis.
struct Window {
  Index size = 1,     ///< cells of the window
      stride = 1,     ///< from one window to the next
      pad_begin = 0,  ///< cells of zeros before the input
      pad_end = 0,    ///< cells of zeros after the input
      dilation = 1;   ///< from one cell of the window to the next
  /// From the first cell of a window to its last, both included.
  Index reach() const { return dilation * (size - 1) + 1; }
  /// Extent of the output for an input of `extent` cells.
  Index outputs(Index extent) const { return (extent + pad_begin + pad_end - reach()) / stride + 1; }
  /// Extent of the output of the transposed convolution; below 1: the padding removes all cells.
  Index transposed_outputs(Index extent, Index output_pad) const {
    return (extent - 1) * stride - pad_begin - pad_end + reach() + output_pad;
  }
};
/// One Window per spatial axis of x [N, spatial..., C].
std::vector<Window> windows(const Shape& filter, const ConvOptions&);
std::vector<Window> windows(int spatial_axes, const PoolOptions&);  ///< of a pooling
/// The output's shape for a whole input [N, spatial..., C]; C stays the input's.
Shape outputs(const Shape& whole, const std::vector<Window>&);
/// The same for the transposed convolution with these windows.
Shape transposed_outputs(const Shape& whole, const std::vector<Window>&, const Extents& output_pad);

/// The inputs that a box of the output reads, and the padding among them.
struct Patch {
  Box inputs;     ///< of the whole; axis 0 and the last as in `have`. Empty along axes where only padding is read.
  Shape extents;  ///< inputs.size; along axes where only padding is read, the number of zeros that the windows cover
  Extents before{0, 0, 0},  ///< zeros before the inputs, one number per spatial axis
      behind{0, 0, 0};      ///< zeros after the inputs
};
/// have: the box of the input that the rank has; whole: shape of the whole input.
Patch patch(const Box& out, const Box& have, const std::vector<Window>&, const Shape& whole);

/// The inputs from which a transposed convolution computes the box `out` of its output, and the padding with which the
/// result is exactly this box.
struct TransposedPatch {
  Box inputs;                  ///< of the whole, at least one cell; axis 0 and the last as in `have`
  Extents pad_begin{0, 0, 0},  ///< cells that the padding removes at the begin
      pad_end{0, 0, 0},        ///< cells that the padding removes at the end
      output_pad{0, 0, 0};     ///< cells that are added at the end
};
/// The patch for `out`. have: the box of the input that the rank has; whole: shape of the whole input.
TransposedPatch transposed_patch(const Box& out, const Box& have, const std::vector<Window>&, const Shape& whole);

/// The outputs in `out` that read nothing outside `have`; empty along an axis where there are none.
Box inner(const Box& out, const Box& have, const std::vector<Window>&, const Shape& whole);

/// Disjoint boxes that cover `whole` without `core`, a box inside it; for an empty core, `whole`.
std::vector<Box> around(const Box& whole, const Box& core);

}  // namespace trireme
