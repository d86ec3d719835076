#include "framework/tensor/rank_mesh.h"

#include <algorithm>

#include "framework/tensor/storage.h"

namespace trireme {

RankMesh::RankMesh(std::vector<MeshAxis> axes, const Roles& roles) : axes_(std::move(axes)), roles_(roles) {
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

void RankMesh::begin_batch(std::vector<Index> row_borders) const {
  row_borders_ = std::move(row_borders);
  own_rows_ = all_rows_ = nullptr;
}

BatchPtr RankMesh::batch_of_all(const BatchPtr& own) const {
  if (!own || own == all_rows_ || !own->samples) return own;
  // The batch of all_rows_ in a replay. The number of samples does not identify it if one rank has all rows.
  if (all_rows_ && own->samples.id() == all_rows_->samples.id()) return own;
  const auto me = static_cast<std::size_t>(index(rows()));
  if (own->samples.numel() != row_borders_[me + 1] - row_borders_[me]) return own;
  if (own == own_rows_) return all_rows_;
  const Tensor samples = Tensor::zeros({row_borders_.back()}, DType::i64);
  copy_unnoted(samples.view_rows(row_borders_[me], row_borders_[me + 1]), own->samples.detach());
  sum(samples, 1u << rows());
  auto all = std::make_shared<BatchContext>(*own);
  all->samples = samples;
  own_rows_ = own;
  return all_rows_ = std::move(all);
}

}  // namespace trireme
