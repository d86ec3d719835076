// Box: a part of a tensor, as a shard is one of a global tensor.
#pragma once
#include <vector>

#include "kernels/core/view.h"

namespace trireme {

/// A box in a tensor: begin and size per axis.
struct Box {
  Shape at, size;                                   ///< one number per axis each
  bool empty() const { return size.numel() == 0; }  ///< of no cell
  bool operator==(const Box&) const = default;      ///< same place and size
};
/// What lies in both boxes of one tensor.
inline Box intersect(const Box& a, const Box& b) {
  Box c = a;
  for (int i = 0; i < a.at.rank(); ++i) {
    c.at[i] = std::max(a.at[i], b.at[i]);
    c.size[i] = std::max<Index>(0, std::min(a.at[i] + a.size[i], b.at[i] + b.size[i]) - c.at[i]);
  }
  return c;
}
/// The place `at` as seen from `origin`.
inline Shape from(const Shape& at, const Shape& origin) {
  Shape s = at;
  for (int i = 0; i < s.rank(); ++i) s[i] -= origin[i];
  return s;
}
/// The elements [begin, end) of a dense tensor of this shape, in row-major order, as the fewest boxes that each lie
/// together in it; at most two per axis but the first, and one.
std::vector<Box> boxes_of(const Shape&, Index begin, Index end);

}  // namespace trireme
