// RankGrid: the ranks of a mesh without a world: who is whose neighbour, and who share a line along axes.
#pragma once
#include <string>
#include <vector>

#include "parallel/comm/cluster.h"
#include "parallel/comm/world/axis.h"

namespace trireme {

/// Lines along an axis, or several joined by +: the ranks that differ in their coordinates there only.
struct RankLines {
  std::vector<int> line_of;  ///< by rank
  std::vector<int> members;  ///< line by line, ranks in order
  std::vector<int> first;    ///< of each line's members, and behind the last
  int lines() const { return static_cast<int>(first.size()) - 1; }
  int size(int line) const { return first[line + 1] - first[line]; }
};

class RankGrid {
 public:
  explicit RankGrid(std::vector<Axis> axes);  ///< row-major, the last axis fastest
  int size() const { return size_; }
  const std::vector<Axis>& axes() const { return axes_; }
  int coordinate(int rank, std::size_t axis) const { return rank / strides_[axis] % axes_[axis].size; }
  /// The rank whose coordinate is greater by offset; -1: there is none. ring: the last and the first are neighbours.
  int neighbour(int rank, std::size_t axis, int offset, bool ring) const;
  std::size_t find(const std::string& axis) const;  ///< its position; the number of axes: there is none
  /// kind: by rank; those of one line but of several kinds are on lines of their own. Empty: of one.
  RankLines lines(const std::string& joined, const std::vector<int>& kind = {}) const;

 private:
  std::vector<Axis> axes_;
  std::vector<int> strides_;
  int size_ = 1;
};

}  // namespace trireme
