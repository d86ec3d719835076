#include "parallel/comm/world/rank_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "kernels/core/error.h"
#include "kernels/core/text.h"

namespace trireme {

std::vector<std::string> names_in(const std::string& joined) { return split_text(joined, '+'); }

int size_along(const std::vector<Axis>& axes, const std::string& axis) {
  int product = 1;
  for (const std::string& name : names_in(axis))
    for (const Axis& a : axes) product *= a.name == name ? a.size : 1;
  return product;
}

std::vector<Axis> parse_mesh(const std::string& text) {
  std::vector<Axis> axes;
  std::istringstream pieces(text);
  for (std::string piece; std::getline(pieces, piece, ',');) {
    const std::size_t equals = piece.find('=');
    int size = 0;
    const bool good = equals != std::string::npos && equals > 0 &&
                      parse_number(std::string_view(piece).substr(equals + 1), size) && size >= 1;
    check(good, "mesh", "'{}' in '{}' is not an axis and its size; write for example pipe=2,data=4", piece, text);
    const std::string name = piece.substr(0, equals);
    for (const Axis& a : axes) check(a.name != name, "mesh", "axis {} is named twice in '{}'", name, text);
    axes.push_back({name, size});
  }
  return axes;
}

std::string to_string(const std::vector<Axis>& axes) {
  std::string text;
  for (const Axis& a : axes) text += fmt::format("{}{}={}", text.empty() ? "" : ",", a.name, a.size);
  return text;
}

int ranks_of(const std::vector<Axis>& axes) {
  std::int64_t product = 1;
  for (const Axis& a : axes) {
    product *= a.size;
    check(product <= 1 << 30, "mesh", "the axes multiply to more than {} ranks", 1 << 30);
  }
  return static_cast<int>(product);
}

RankGrid::RankGrid(std::vector<Axis> axes) : axes_(std::move(axes)), strides_(axes_.size()), size_(ranks_of(axes_)) {
  int stride = 1;
  for (std::size_t i = axes_.size(); i-- > 0; stride *= axes_[i].size) strides_[i] = stride;
}

std::size_t RankGrid::find(const std::string& axis) const {
  return static_cast<std::size_t>(std::ranges::find(axes_, axis, &Axis::name) - axes_.begin());
}

int RankGrid::neighbour(int rank, std::size_t axis, int offset) const {
  if (axis >= axes_.size()) return -1;
  const int to = coordinate(rank, axis) + offset;
  return to < 0 || to >= axes_[axis].size ? -1 : rank + offset * strides_[axis];
}

std::vector<std::size_t> RankGrid::named(const std::string& joined) const {
  std::vector<std::size_t> found;
  for (const std::string& name : names_in(joined))
    if (const std::size_t at = find(name); at < axes_.size()) found.push_back(at);
  return found;
}

std::pair<int, int> RankGrid::place(int rank, const std::vector<std::size_t>& along) const {
  int line = 0, at = 0;
  for (std::size_t i = 0; i < axes_.size(); ++i)
    if (std::ranges::find(along, i) == along.end()) line = line * axes_[i].size + coordinate(rank, i);
  for (const std::size_t i : along) at = at * axes_[i].size + coordinate(rank, i);
  return {line, at};
}

RankLines RankGrid::lines(const std::string& joined, const std::vector<int>& kind) const {
  const auto along = named(joined);
  const int kinds = kind.empty() ? 1 : *std::ranges::max_element(kind) + 1;
  const auto n = static_cast<std::size_t>(size_);
  RankLines lines{.line_of = std::vector<int>(n), .members = std::vector<int>(n), .first = {}};
  lines.first.resize(static_cast<std::size_t>(kinds * (size_ / size_along(axes_, joined))) + 1);
  for (int rank = 0; rank < size_; ++rank) {
    lines.line_of[rank] = place(rank, along).first * kinds + (kind.empty() ? 0 : kind[rank]);
    ++lines.first[lines.line_of[rank] + 1];
  }
  for (int line = 0; line < lines.lines(); ++line) lines.first[line + 1] += lines.first[line];
  std::vector<int> next(lines.first.begin(), lines.first.end() - 1);
  for (int rank = 0; rank < size_; ++rank) lines.members[next[lines.line_of[rank]]++] = rank;
  return lines;
}

}  // namespace trireme
