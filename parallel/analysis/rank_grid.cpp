#include "parallel/analysis/rank_grid.h"

#include <algorithm>

#include "parallel/comm/world/mesh.h"

namespace trireme {

RankGrid::RankGrid(std::vector<Axis> axes) : axes_(std::move(axes)), strides_(axes_.size()), size_(ranks_of(axes_)) {
  int stride = 1;
  for (std::size_t i = axes_.size(); i-- > 0; stride *= axes_[i].size) strides_[i] = stride;
}

std::size_t RankGrid::find(const std::string& axis) const {
  return static_cast<std::size_t>(std::ranges::find(axes_, axis, &Axis::name) - axes_.begin());
}

int RankGrid::neighbour(int rank, std::size_t axis, int offset, bool ring) const {
  if (axis >= axes_.size()) return ring ? rank : -1;
  const int size = axes_[axis].size, from = coordinate(rank, axis);
  int to = from + offset;
  if (ring) to = (to % size + size) % size;
  return to < 0 || to >= size ? -1 : rank + (to - from) * strides_[axis];
}

RankLines RankGrid::lines(const std::string& joined) const {
  std::vector<bool> along(axes_.size());
  for (const std::string& name : names_in(joined))
    if (const std::size_t at = find(name); at < axes_.size()) along[at] = true;
  RankLines lines;
  for (std::size_t i = 0; i < axes_.size(); ++i) lines.size *= along[i] ? axes_[i].size : 1;
  const auto n = static_cast<std::size_t>(size_);
  lines.line_of.resize(n), lines.members.resize(n);
  for (int rank = 0; rank < size_; ++rank) {
    int line = 0, place = 0;
    for (std::size_t i = 0; i < axes_.size(); ++i) {
      int& into = along[i] ? place : line;
      into = into * axes_[i].size + coordinate(rank, i);
    }
    lines.line_of[static_cast<std::size_t>(rank)] = line;
    lines.members[static_cast<std::size_t>(line) * static_cast<std::size_t>(lines.size) +
                  static_cast<std::size_t>(place)] = rank;
  }
  return lines;
}

}  // namespace trireme
