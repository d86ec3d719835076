#include "parallel/mesh.h"

#include <algorithm>

namespace trireme {

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
  // The last axis varies fastest. Ranks on one line along an axis share everything but their coordinate there.
  int rest = world.rank(), stride = 1;
  for (std::size_t i = axes_.size(); i-- > 0; rest /= axes_[i].size) at_[i] = rest % axes_[i].size;
  for (std::size_t i = axes_.size(); i-- > 0; stride *= axes_[i].size) {
    const int line = world.rank() - at_[i] * stride;
    comms_[axes_[i].name] = world.comm().split(line, at_[i]);
  }
}

int Mesh::size(const std::string& axis) const {
  for (auto& a : axes_)
    if (a.name == axis) return a.size;
  return 1;
}

int Mesh::index(const std::string& axis) const {
  for (std::size_t i = 0; i < axes_.size(); ++i)
    if (axes_[i].name == axis) return at_[i];
  return 0;
}

Communicator& Mesh::comm(const std::string& axis) {
  auto found = comms_.find(axis);
  if (found == comms_.end()) {
    std::string names;
    for (auto& a : axes_) names += (names.empty() ? "" : ", ") + a.name;
    fail("mesh", "there is no axis {}; the axes are: {}", axis, names);
  }
  return *found->second;
}

}  // namespace trireme
