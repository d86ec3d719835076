#include "framework/tensor/rank_mesh.h"

#include <algorithm>

namespace trireme {

RankMesh::RankMesh(std::vector<MeshAxis> axes, AxisMask summed, int rows)
    : axes_(std::move(axes)), summed_(summed), rows_(rows) {
  check(axes_.size() <= max_axes, "split", "{} mesh axes would divide layers, at most {} can", axes_.size(), max_axes);
  for (const MeshAxis& axis : axes_) place_.push_back(axis.index);
}

int RankMesh::find(const std::string& name) const {
  const auto found = std::ranges::find(axes_, name, &MeshAxis::name);
  return found == axes_.end() ? -1 : static_cast<int>(found - axes_.begin());
}

int RankMesh::ranks(AxisMask axes) const {
  int all = 1;
  for (int i = 0; i < this->axes(); ++i)
    if (axes >> i & 1) all *= size(i);
  return all;
}

RankMesh::Line RankMesh::line(AxisMask axes) const {
  Line line;
  for (int rank = 0; rank < ranks(~AxisMask{0}); ++rank) {
    std::vector<int> at = place_;
    bool differs = false;  // along another axis
    for (int i = this->axes(), rest = rank; i-- > 0; rest /= size(i)) {
      at[static_cast<std::size_t>(i)] = rest % size(i);
      differs = differs || (!(axes >> i & 1) && rest % size(i) != index(i));
    }
    if (differs) continue;
    if (at == place_) line.me = static_cast<int>(line.ranks.size());
    line.ranks.push_back(rank);
    line.at.push_back(std::move(at));
  }
  return line;
}

}  // namespace trireme
