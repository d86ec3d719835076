#include "parallel/split/grid.h"

#include <algorithm>
#include <bit>

#include "framework/tensor/launch.h"
#include "kernels/core/runtime.h"
#include "parallel/comm/world/norm_ranks.h"

namespace trireme {

struct Grid::Chosen {
  std::vector<MeshAxis> axes;
  RankMesh::Roles roles;

  Chosen(Mesh& mesh, const std::vector<std::string>& names, const std::vector<std::string>& grad_reduce_axes,
         const Grid::Roles& of) {
    roles.context_mode = of.context_mode;
    roles.context_cut = of.context_cut;
    for (const std::string& name : names) {
      if (mesh.size(name) == 1) continue;
      if (std::ranges::count(grad_reduce_axes, name) > 0) roles.summed |= 1u << axes.size();
      if (name == of.sequence) roles.sequence = 1u << axes.size();
      if (name == of.context) roles.context = 1u << axes.size();
      if (std::ranges::count(of.apart, name) > 0) roles.apart |= 1u << axes.size();
      if (name == of.rows) roles.rows = static_cast<int>(axes.size());
      axes.push_back({name, mesh.size(name), mesh.index(name)});
    }
  }
};

Grid::Grid(Mesh& mesh, const std::vector<std::string>& axes, const std::vector<std::string>& grad_reduce_axes,
           const Roles& roles)
    : Grid(mesh, Chosen(mesh, axes, grad_reduce_axes, roles)) {}

Grid::Grid(Mesh& mesh, const Chosen& chosen) : RankMesh(chosen.axes, chosen.roles) {
  std::string all;
  for (const MeshAxis& axis : chosen.axes) {
    all += (all.empty() ? "" : "+") + axis.name;
    sums_.push_back(mesh.comm(axis.name).split(0, axis.index));
  }
  if (!all.empty()) comm_ = mesh.comm(all).split(0, mesh.index(all));
}

RankMesh::Wait Grid::start_sum(const View& x, AxisMask axes) const {
  if (x.numel() == 0 || axes == 0) return [] {};
  const MemoryScope packed(MemoryKind::packed);
  const Tensor sum = Tensor::empty(x.shape, x.dtype, x.device);
  copy_block(sum, x);
  const int first = std::countr_zero(axes);
  return [this, x, sum, first, axes, work = along(first).all_reduce(sum)]() mutable {
    work.wait();
    for (int i = first + 1; i < this->axes(); ++i)
      if (axes >> i & 1) along(i).all_reduce(sum).wait();
    copy_block(x, sum);
  };
}

RankMesh::Wait Grid::send(const Tensor& x, int rank) const { return waiting_for(comm().send(x, rank)); }
RankMesh::Wait Grid::recv(const Tensor& into, int rank) const { return waiting_for(comm().recv(into, rank)); }

std::shared_ptr<const NormRanks> Grid::norm_ranks(AxisMask axes, std::shared_ptr<const NormRanks> outer) const {
  std::vector<Communicator*> within;
  for (int i = 0; i < this->axes(); ++i)
    if (axes >> i & 1) within.push_back(&along(i));
  return std::make_shared<CommunicatorNormRanks>(std::move(within), std::move(outer), shared_from_this());
}

}  // namespace trireme
