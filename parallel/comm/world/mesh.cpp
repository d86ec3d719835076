#include "parallel/comm/world/mesh.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>
#include <sstream>

#include "kernels/core/text.h"
#include "parallel/comm/world/compare.h"

namespace trireme {
namespace {

/// Positions of the axes that a name, or several joined by +, stand for.
std::vector<std::size_t> find(const std::vector<Axis>& axes, const std::string& axis) {
  std::vector<std::size_t> found;
  for (const std::string& name : names_in(axis))
    for (std::size_t i = 0; i < axes.size(); ++i)
      if (axes[i].name == name) found.push_back(i);
  return found;
}

}  // namespace

std::vector<std::string> names_in(const std::string& joined) { return split_text(joined, '+'); }

int size_along(const std::vector<Axis>& axes, const std::string& axis) {
  int product = 1;
  for (std::size_t i : find(axes, axis)) product *= axes[i].size;
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
  Index product = 1;
  for (const Axis& a : axes) {
    product *= a.size;
    check(product <= 1 << 30, "mesh", "the axes multiply to more than {} ranks", 1 << 30);
  }
  return static_cast<int>(product);
}

Mesh::Mesh(World& world) : Mesh(world, {{"data", world.size()}}) {}

Mesh::Mesh(World& world, std::vector<Axis> axes) : world_(world), axes_(std::move(axes)), at_(axes_.size()) {
  Index product = 1;
  std::string text;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    auto& [name, size] = axes_[i];
    check(size >= 1, "mesh", "axis {} has size {}, expected at least 1", name, size);
    check(std::count_if(axes_.begin(), axes_.end(), [&, n = name](auto& a) { return a.name == n; }) == 1, "mesh",
          "axis {} is named twice", name);
    product *= size;
    text += fmt::format("{}{} {}", i ? " x " : "", name, size);
  }
  if (product != world.size()) {
    std::string remedy = fmt::format("start {} ranks", product);
    for (auto& [name, size] : axes_)
      if (world.size() % (product / size) == 0) {
        remedy += fmt::format(", or make {} {}", name, world.size() / (product / size));
        break;
      }
    fail("mesh", "{} makes {} ranks, the world has {}: {}", text, product, world.size(), remedy);
  }
  compare_ranks(world.comm(), "mesh", to_string(axes_));
  place(world.rank());
}

Mesh::Mesh(World& world, std::vector<Axis> axes, int rank)
    : world_(world), axes_(std::move(axes)), at_(axes_.size()), imagined_(true) {
  check(rank >= 0 && rank < ranks_of(axes_), "mesh", "there is no rank {} of {}", rank, ranks_of(axes_));
  place(rank);
}

/// The last axis varies fastest. Ranks on one line along an axis share everything but their coordinate there.
void Mesh::place(int rank) {
  int rest = rank, stride = 1;
  for (std::size_t i = axes_.size(); i-- > 0; rest /= axes_[i].size) at_[i] = rest % axes_[i].size;
  for (std::size_t i = axes_.size(); i-- > 0; stride *= axes_[i].size)
    comms_[axes_[i].name] = make(axes_[i].name, rank - at_[i] * stride);
}

/// line: what the ranks of one communicator have in common.
std::unique_ptr<Communicator> Mesh::make(const std::string& axis, int line) {
  return meter_.metered(
      imagined_ ? imagined_communicator(index(axis), size(axis)) : world_.comm().split(line, index(axis)), axis);
}

int Mesh::index(const std::string& axis) const {
  int index = 0;
  for (std::size_t i : find(axes_, axis)) index = index * axes_[i].size + at_[i];
  return index;
}

Communicator& Mesh::comm(const std::string& axis) {
  auto found = comms_.find(axis);
  if (found == comms_.end()) {
    if (const auto several = find(axes_, axis); !several.empty()) {
      int line = 0;  // the other coordinates
      for (std::size_t i = 0; i < axes_.size(); ++i) {
        const bool free = std::find(several.begin(), several.end(), i) != several.end();
        line = line * axes_[i].size + (free ? 0 : at_[i]);
      }
      return *(comms_[axis] = make(axis, line));
    }
    fail("mesh", "there is no axis {}; the axes are: {}", axis,
         fmt::join(axes_ | std::views::transform(&Axis::name), ", "));
  }
  return *found->second;
}

}  // namespace trireme
