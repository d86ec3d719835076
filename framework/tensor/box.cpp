#include "framework/tensor/box.h"

namespace trireme {
namespace {

/// Adds boxes for [begin, end) of the block with the coordinates `at` before `axis`.
void add_boxes(std::vector<Box>& to, const Shape& shape, int axis, Box box, Index begin, Index end) {
  const Index inner = axis < shape.rank() ? shape.product(axis + 1, shape.rank()) : 1;
  while (begin < end) {
    const Index row = begin / inner, whole = end / inner - row;
    if (axis < shape.rank()) {
      box.at[axis] = row;
      box.size[axis] = std::max<Index>(1, whole);
    }
    const Index next = std::min(end, (row + 1) * inner);
    if (begin == row * inner && whole > 0) {
      to.push_back(box);
      begin = axis < shape.rank() ? end / inner * inner : end;
    } else {
      Box part = box;
      part.size[axis] = 1;
      add_boxes(to, shape, axis + 1, part, begin - row * inner, next - row * inner);
      begin = next;
    }
  }
}

}  // namespace

std::vector<Box> boxes_of(const Shape& shape, Index begin, Index end) {
  std::vector<Box> boxes;
  Box all{shape, shape};
  for (int i = 0; i < shape.rank(); ++i) all.at[i] = 0;
  add_boxes(boxes, shape, 0, all, begin, end);
  return boxes;
}

}  // namespace trireme
