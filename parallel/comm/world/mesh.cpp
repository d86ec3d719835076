#include "parallel/comm/world/mesh.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>

#include "parallel/comm/world/compare.h"

namespace trireme {
namespace {

/// Checks that the axes are equal on all ranks, and that their sizes multiply to the number of ranks.
std::vector<Axis> checked(World& world, std::vector<Axis> axes) {
  Index product = 1;
  std::string text;
  for (auto& [name, size] : axes) {
    check(size >= 1, "mesh", "axis {} has size {}, expected at least 1", name, size);
    check(std::ranges::count(axes, name, &Axis::name) == 1, "mesh", "axis {} is given twice", name);
    product *= size;
    text += fmt::format("{}{} {}", text.empty() ? "" : " x ", name, size);
  }
  if (product != world.size()) {
    std::string remedy = fmt::format("start {} ranks", product);
    for (auto& [name, size] : axes)
      if (world.size() % (product / size) == 0) {
        remedy += fmt::format(", or make {} {}", name, world.size() / (product / size));
        break;
      }
    fail("mesh", "{} makes {} ranks, the world has {}: {}", text, product, world.size(), remedy);
  }
  compare_ranks(world.comm(), "mesh", to_string(axes));
  return axes;
}

}  // namespace

Mesh::Mesh(World& world) : Mesh(world, {{"data", world.size()}}) {}
Mesh::Mesh(World& world, std::vector<Axis> axes)
    : Mesh(world, RankGrid(checked(world, std::move(axes))), world.rank(), false) {}
Mesh::Mesh(World& world, std::vector<Axis> axes, int rank) : Mesh(world, RankGrid(std::move(axes)), rank, true) {}

Mesh::Mesh(World& world, RankGrid grid, int rank, bool imagined)
    : world_(world), grid_(std::move(grid)), rank_(rank), imagined_(imagined) {
  check(rank >= 0 && rank < grid_.size(), "mesh", "there is no rank {} of {}", rank, grid_.size());
  for (const Axis& axis : axes() | std::views::reverse) make(axis.name);
}

Communicator& Mesh::make(const std::string& axis) {
  const auto [line, at] = grid_.place(rank_, axis);
  auto comm = imagined_ ? imagined_communicator(at, size(axis)) : world_.comm().split(line, at);
  return *(comms_[axis] = meter_.metered(std::move(comm), axis));
}

Communicator& Mesh::comm(const std::string& axis) {
  if (const auto found = comms_.find(axis); found != comms_.end()) return *found->second;
  const auto names = axes() | std::views::transform(&Axis::name);
  for (const std::string& name : names_in(axis))
    if (std::ranges::find(names, name) != names.end()) return make(axis);
  fail("mesh", "there is no axis {}; the axes are: {}", axis, fmt::join(names, ", "));
}

}  // namespace trireme
