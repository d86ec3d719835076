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
      pad_begin = 0,  ///< cells of padding in front
      pad_end = 0,    ///< cells of padding behind
      dilation = 1;   ///< from one cell of the window to the next
  /// From the first cell of a window to its last, both included.
  Index reach() const { return dilation * (size - 1) + 1; }
  /// Of the output over an input of `extent`.
  Index outputs(Index extent) const { return (extent + pad_begin + pad_end - reach()) / stride + 1; }
  /// Of the output of the convolution that transposes this one; below 1: the padding leaves none.
  Index transposed_outputs(Index extent, Index output_pad) const {
    return (extent - 1) * stride - pad_begin - pad_end + reach() + output_pad;
  }
};
/// One Window per spatial axis of x [N, spatial..., C].
std::vector<Window> windows(const Shape& filter, const ConvOptions&);
std::vector<Window> windows(int spatial_axes, const PoolOptions&);  ///< of a pooling
/// The output's extents over a whole input; its last is the input's.
Shape outputs(const Shape& whole, const std::vector<Window>&);
/// The same of the convolution that transposes these windows.
Shape transposed_outputs(const Shape& whole, const std::vector<Window>&, const Extents& output_pad);

/// The inputs behind the box `out` of the output, and the padding that lies in its reach.
struct Patch {
  Box inputs;     ///< of the whole; axis 0 and the last as in `have`. Empty along axes where only padding is read.
  Shape extents;  ///< inputs.size, but where only padding is read: as many zeros as the windows cover
  Extents before{0, 0, 0},  ///< padding in front, one number per spatial axis
      behind{0, 0, 0};      ///< padding behind
};
/// have: the box of the input that the rank has; whole: shape of the whole input.
Patch patch(const Box& out, const Box& have, const std::vector<Window>&, const Shape& whole);

/// The inputs that a transposed convolution makes the box `out` of its output from, and the padding with which it makes
/// this box of them, and no other cell.
struct TransposedPatch {
  Box inputs;                  ///< of the whole, at least one cell; axis 0 and the last as in `have`
  Extents pad_begin{0, 0, 0},  ///< cells that the padding takes off in front
      pad_end{0, 0, 0},        ///< cells that it takes off behind
      output_pad{0, 0, 0};     ///< cells that are added behind
};
TransposedPatch transposed_patch(const Box& out, const Box& have, const std::vector<Window>&, const Shape& whole);

/// The outputs in `out` that read nothing outside `have`; empty along an axis where there are none.
Box inner(const Box& out, const Box& have, const std::vector<Window>&, const Shape& whole);

/// Boxes that, with `core`, which lies in it, make up `whole`; an empty core: all of it.
std::vector<Box> around(const Box& whole, const Box& core);

}  // namespace trireme
