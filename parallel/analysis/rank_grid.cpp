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

RankLines RankGrid::lines(const std::string& joined, const std::vector<int>& kind) const {
  std::vector<bool> along(axes_.size());
  for (const std::string& name : names_in(joined))
    if (const std::size_t at = find(name); at < axes_.size()) along[at] = true;
  const int kinds = kind.empty() ? 1 : *std::ranges::max_element(kind) + 1;
  int count = kinds;
  for (std::size_t i = 0; i < axes_.size(); ++i) count *= along[i] ? 1 : axes_[i].size;
  RankLines lines{.line_of = std::vector<int>(size_), .members = std::vector<int>(size_), .first = {}};
  lines.first.resize(count + 1);
  for (int rank = 0; rank < size_; ++rank) {
    int line = 0;
    for (std::size_t i = 0; i < axes_.size(); ++i)
      if (!along[i]) line = line * axes_[i].size + coordinate(rank, i);
    lines.line_of[rank] = line * kinds + (kind.empty() ? 0 : kind[rank]);
    ++lines.first[lines.line_of[rank] + 1];
  }
  for (int line = 0; line < count; ++line) lines.first[line + 1] += lines.first[line];
  std::vector<int> next(lines.first.begin(), lines.first.end() - 1);
  for (int rank = 0; rank < size_; ++rank) lines.members[next[lines.line_of[rank]]++] = rank;
  return lines;
}

}  // namespace trireme
