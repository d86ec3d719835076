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
/// Calls f(position in the whole, position in the box, count) for each run of elements that are adjacent in both, in
/// row-major order. Positions and counts are in elements. whole: shape of the tensor that has the box.
template <class F>
void each_run(const Box& box, const Shape& whole, F&& f) {
  if (box.empty()) return;
  const int rank = whole.rank();
  int first = rank;  // a run covers the axes from here on; of `first` a part, of the others all
  while (first > 0 && (first == rank || box.size[first] == whole[first])) --first;
  const Index run = box.size.product(first, rank), runs = box.size.product(0, first);
  for (Index r = 0; r < runs; ++r) {
    Index begin = 0, stride = 1, rest = r;
    for (int i = rank; i-- > 0; stride *= whole[i]) {
      begin += stride * (i >= first ? box.at[i] : box.at[i] + rest % box.size[i]);
      if (i < first) rest /= box.size[i];
    }
    f(begin, r * run, run);
  }
}
/// Elements [begin, end) of a dense tensor of this shape, in row-major order, as the fewest boxes that are contiguous
/// in it: at most two per axis except the first, and one more.
std::vector<Box> boxes_of(const Shape&, Index begin, Index end);

}  // namespace trireme
