// Interval arithmetic of layers that are split over ranks: which part of a tensor a rank owns, which part of its input
// a window layer needs, and who therefore sends what to whom. Pure functions.
#pragma once
#include <span>
#include <vector>

#include "framework/tensor/box.h"

namespace trireme {

/// [begin, end).
struct Range {
  Index begin = 0, end = 0;
  Index size() const { return end > begin ? end - begin : 0; }
  bool operator==(const Range&) const = default;
};
/// The share of part `index` of `parts` of an extent: sizes differ by one at most, any extent will do.
Range even_share(Index extent, int parts, int index);

/// A convolution's or a pooling's window along one axis.
struct Window {
  Index size = 1, stride = 1, pad_begin = 0, pad_end = 0, dilation = 1;
  Index reach() const { return dilation * (size - 1) + 1; }
  /// Of the output over an input of `extent`.
  Index outputs(Index extent) const { return (extent + pad_begin + pad_end - reach()) / stride + 1; }
};
/// Outputs `out` of a window over an input of `extent`: the inputs that they read, and how many of the cells they cover
/// lie in the padding before and behind. Where they cover nothing but padding, `inputs` is empty.
struct Reads {
  Range inputs;
  Index before = 0, behind = 0;
};
Reads reads(Range out, const Window&, Index extent);
/// The outputs in `out` that read nothing outside `have` (an empty range: there are none).
Range inner(Range out, const Window&, Index extent, Range have);

/// Cuts `whole` into `core`, which lies in it, and boxes around it; core first if it is not empty.
std::vector<Box> around(const Box& whole, const Box& core);

/// Which boxes a rank sends and receives when rank r has have[r] and shall have want[r]; its own are not among them.
/// Every element that somebody wants lies in exactly one have.
struct Route {
  struct Piece {
    int peer;
    Box box;
  };
  std::vector<Piece> sends, recvs;
  bool empty() const { return sends.empty() && recvs.empty(); }
};
Route route(std::span<const Box> have, std::span<const Box> want, int me);

}  // namespace trireme
