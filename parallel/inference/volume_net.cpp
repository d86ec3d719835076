#include "parallel/inference/volume_net.h"

#include <algorithm>

namespace trireme {

namespace {

/// The spatial axis of a mesh axis.
std::size_t spatial_of(const Axis& axis, int spatial_axes) {
  static constexpr const char* names[] = {"d", "h", "w"};
  const auto at = std::find(std::begin(names), std::end(names), axis.name);
  check(at != std::end(names), "infer", "a volume is divided over the mesh axes d, h and w; '{}' is none of them",
        axis.name);
  const int spatial = static_cast<int>(at - names) - (3 - spatial_axes);
  check(spatial >= 0, "infer", "a picture has no axis d; divide it over h and w");
  return static_cast<std::size_t>(spatial);
}

}  // namespace

Division division_of(const std::vector<Axis>& mesh, int spatial_axes, const Grid* grid) {
  Division division;
  for (const Axis& axis : mesh) {
    const std::size_t spatial = spatial_of(axis, spatial_axes);
    division.parts[spatial] = axis.size;
    if (grid) division.axis[spatial] = grid->find(axis.name);
  }
  return division;
}

AxisMask axes_of(const Division& division) {
  AxisMask mask = 0;
  for (const int axis : division.axis)
    if (axis >= 0) mask |= 1u << axis;
  return mask;
}

Extents place_of(const Division& division, const std::vector<int>& at) {
  Extents place{0, 0, 0};
  for (std::size_t s = 0; s < 3; ++s)
    if (division.axis[s] >= 0) place[s] = at[static_cast<std::size_t>(division.axis[s])];
  return place;
}

std::vector<Extents> places_of(const Division& division) {
  std::vector<Extents> all;
  for (Index d = 0; d < division.parts[0]; ++d)
    for (Index h = 0; h < division.parts[1]; ++h)
      for (Index w = 0; w < division.parts[2]; ++w) all.push_back({d, h, w});
  return all;
}

std::vector<Extents> places_of(const std::vector<Axis>& mesh, int spatial_axes) {
  std::vector<Extents> all(static_cast<std::size_t>(ranks_of(mesh)), Extents{0, 0, 0});
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    Index rest = static_cast<Index>(rank);
    for (auto axis = mesh.rbegin(); axis != mesh.rend(); rest /= axis->size, ++axis)
      all[rank][spatial_of(*axis, spatial_axes)] = rest % axis->size;
  }
  return all;
}

Box hull(const Box& a, const Box& b) {
  if (a.empty() || b.empty()) return a.empty() ? b : a;
  Box c = a;
  for (int i = 0; i < a.at.rank(); ++i) {
    c.at[i] = std::min(a.at[i], b.at[i]);
    c.size[i] = std::max(a.at[i] + a.size[i], b.at[i] + b.size[i]) - c.at[i];
  }
  return c;
}

double exchange_into(const Grid& grid, const Grid::Line& line, const Tensor& block, const Shape& origin,
                     const std::vector<Box>& have, const std::vector<Box>& want) {
  const Route there = route(have, want, line.me);
  Exchange exchange(grid, line, there, block, origin, MemoryKind::halos);
  for (const auto& [box, values] : exchange.wait()) copy_box(block, origin, values, box.at, box);
  double sent = 0;
  for (const auto& [peer, box] : there.sends) sent += static_cast<double>(box.size.numel());
  return sent * static_cast<double>(size_of(block.dtype()));
}

}  // namespace trireme
