// RankGrid: the positions of ranks on named axes, without communication: coordinates, neighbours and lines of ranks.
// Row-major: the last axis varies fastest. Axes joined by + act as one axis: "data+h" has the ranks of both, and the
// last named varies fastest. Axes that do not exist are ignored.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace trireme {

/// A named direction of a mesh of ranks.
struct Axis {
  std::string name;                              ///< "data", "pipe", "tensor", "h", ...
  int size = 1;                                  ///< ranks along it
  bool operator==(const Axis&) const = default;  ///< equal name and size
};

/// The ranks whose coordinate along a mesh axis is in [begin, end).
struct CoordinateRange {
  std::string axis;                                         ///< mesh axis
  int begin = 0,                                            ///< first coordinate
      end = 0;                                              ///< after the last coordinate
  bool operator==(const CoordinateRange&) const = default;  ///< member by member
};

/// The names in "data+h": {"data", "h"}.
std::vector<std::string> names_in(const std::string& joined);
/// Ranks along an axis, or along several joined by +; 1 for an axis that does not exist.
int size_along(const std::vector<Axis>&, const std::string& axis);
/// Reads "pipe=2,data=4". Throws Error that names a piece of another form.
std::vector<Axis> parse_mesh(const std::string& text);
std::string to_string(const std::vector<Axis>&);  ///< as parse_mesh() reads it
/// The product of the sizes; 1 for no axes. Throws Error above 2^30.
int ranks_of(const std::vector<Axis>&);

/// The lines of a grid along an axis, or several joined by +. Ranks on a line differ only in their coordinates on these
/// axes.
struct RankLines {
  std::vector<int> line_of;  ///< line of each rank
  std::vector<int> members;  ///< ranks, line by line, each line in order
  std::vector<int> first;    ///< index into members where each line begins, then members.size()
  int lines() const { return static_cast<int>(first.size()) - 1; }    ///< number of lines
  int size(int line) const { return first[line + 1] - first[line]; }  ///< ranks on that line
};

/// Ranks on named axes, numbered row-major.
class RankGrid {
 public:
  explicit RankGrid(std::vector<Axis> axes);               ///< Throws Error as ranks_of()
  int size() const { return size_; }                       ///< number of ranks
  const std::vector<Axis>& axes() const { return axes_; }  ///< in order
  /// Position of the rank along axes()[axis], from 0.
  int coordinate(int rank, std::size_t axis) const { return rank / strides_[axis] % axes_[axis].size; }
  /// The rank whose coordinate along axis is greater by offset; -1: none.
  int neighbour(int rank, std::size_t axis, int offset) const;
  std::size_t find(const std::string& axis) const;  ///< index in axes(); axes().size() if it does not exist
  /// The line of the rank along an axis (or several joined by +), and its position on that line.
  std::pair<int, int> place(int rank, const std::string& joined) const { return place(rank, named(joined)); }
  /// All lines along an axis, or several joined by +. kind: a number per rank; ranks of different kinds are on separate
  /// lines. Empty: all ranks are of one kind.
  RankLines lines(const std::string& joined, const std::vector<int>& kind = {}) const;

 private:
  std::vector<std::size_t> named(const std::string& joined) const;
  std::pair<int, int> place(int rank, const std::vector<std::size_t>& along) const;

  std::vector<Axis> axes_;
  std::vector<int> strides_;
  int size_ = 1;
};

}  // namespace trireme
