// RankGrid: ranks on named axes without a world: who is whose neighbour, and who share a line along axes. Row-major,
// the last axis varies fastest. Axes joined by + are one: "data+h" has the ranks of both, the last named fastest; those
// that are not there are left out.
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

/// The names in "data+h".
std::vector<std::string> names_in(const std::string& joined);
/// Ranks along an axis, or several joined by +; 1 where there is none of the name.
int size_along(const std::vector<Axis>&, const std::string& axis);
/// "pipe=2,data=4". Throws Error naming the piece that is not of that form.
std::vector<Axis> parse_mesh(const std::string& text);
std::string to_string(const std::vector<Axis>&);  ///< as parse_mesh() reads it
/// The product of the sizes; 1 for no axes. Throws Error above 2^30.
int ranks_of(const std::vector<Axis>&);

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
  explicit RankGrid(std::vector<Axis> axes);
  int size() const { return size_; }
  const std::vector<Axis>& axes() const { return axes_; }
  int coordinate(int rank, std::size_t axis) const { return rank / strides_[axis] % axes_[axis].size; }
  /// The rank whose coordinate is greater by offset; -1: there is none. ring: the last and the first are neighbours.
  int neighbour(int rank, std::size_t axis, int offset, bool ring) const;
  std::size_t find(const std::string& axis) const;  ///< its position; the number of axes: there is none
  /// Of an axis, or several joined by +: the line that the rank is on, and where it is on it.
  std::pair<int, int> place(int rank, const std::string& joined) const { return place(rank, named(joined)); }
  /// kind: by rank; those of one line but of several kinds are on lines of their own. Empty: of one.
  RankLines lines(const std::string& joined, const std::vector<int>& kind = {}) const;

 private:
  std::vector<std::size_t> named(const std::string& joined) const;
  std::pair<int, int> place(int rank, const std::vector<std::size_t>& along) const;

  std::vector<Axis> axes_;
  std::vector<int> strides_;
  int size_ = 1;
};

}  // namespace trireme
