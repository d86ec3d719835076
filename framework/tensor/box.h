// Box: a rectangular part of a tensor, for example a shard of a global tensor.
#pragma once
#include <vector>

#include "kernels/core/view.h"

namespace trireme {

/// A box in a tensor: begin and size per axis.
struct Box {
  Shape at,                                         ///< first cell, one number per axis
      size;                                         ///< extents, one number per axis
  bool empty() const { return size.numel() == 0; }  ///< has no cells
  bool operator==(const Box&) const = default;      ///< same position and size
};
/// The intersection of two boxes of one tensor.
inline Box intersect(const Box& a, const Box& b) {
  Box c = a;
  for (int i = 0; i < a.at.rank(); ++i) {
    c.at[i] = std::max(a.at[i], b.at[i]);
    c.size[i] = std::max<Index>(0, std::min(a.at[i] + a.size[i], b.at[i] + b.size[i]) - c.at[i]);
  }
  return c;
}
/// The position `at` relative to `origin`.
inline Shape from(const Shape& at, const Shape& origin) {
  Shape s = at;
  for (int i = 0; i < s.rank(); ++i) s[i] -= origin[i];
  return s;
}
/// Elements [begin, end) of a dense tensor of this shape, in row-major order, as the fewest boxes that are contiguous
/// in it: at most two per axis except the first, and one more.
std::vector<Box> boxes_of(const Shape&, Index begin, Index end);

}  // namespace trireme
