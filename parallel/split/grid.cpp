#include "parallel/split/grid.h"

#include <algorithm>

#include "framework/autograd/tape.h"
#include "framework/tensor/launch.h"
#include "kernels/contracts/move.h"
#include "kernels/core/runtime.h"

namespace trireme {
namespace {

std::vector<Tensor> packed(const Route& route, const Tensor& x, const Shape& origin) {
  const MemoryScope scope(MemoryKind::packed);
  std::vector<Tensor> sends;
  for (const auto& [peer, box] : route.sends) sends.push_back(cut(x, origin, box));
  return sends;
}

}  // namespace

Grid::Grid(Mesh& mesh, const std::vector<std::string>& axes, const std::vector<std::string>& grad_reduce_axes,
           const std::string& rows) {
  std::string all;
  for (const std::string& name : axes) {
    if (mesh.size(name) == 1) continue;
    if (std::count(grad_reduce_axes.begin(), grad_reduce_axes.end(), name)) grad_reduce_axes_ |= 1u << axes_.size();
    if (name == rows) rows_ = static_cast<int>(axes_.size());
    axes_.push_back({name, mesh.size(name)});
    at_.push_back(mesh.index(name));
    all += (all.empty() ? "" : "+") + name;
    sums_.push_back(mesh.comm(name).split(0, mesh.index(name)));
  }
  if (!all.empty()) comm_ = mesh.comm(all).split(0, mesh.index(all));
}

int Grid::find(const std::string& name) const {
  for (int i = 0; i < axes(); ++i)
    if (this->name(i) == name) return i;
  return -1;
}

Grid::Line Grid::line(AxisMask axes) const {
  Line line;
  for (int rank = 0; rank < ranks_of(axes_); ++rank) {
    std::vector<int> at = at_;
    for (int i = this->axes(), rest = rank; i-- > 0; rest /= size(i)) at[i] = rest % size(i);
    bool differs = false;  // along another axis
    for (int i = 0; i < this->axes(); ++i) differs = differs || (!(axes >> i & 1) && at[i] != at_[i]);
    if (differs) continue;
    if (at == at_) line.me = static_cast<int>(line.ranks.size());
    line.ranks.push_back(rank);
    line.at.push_back(at);
  }
  return line;
}

void Grid::sum(const View& x, AxisMask axes) const {
  if (x.numel() == 0 || axes == 0) return;
  const MemoryScope packed(MemoryKind::packed);
  const Tensor sum = Tensor::empty(x.shape, x.dtype, x.device);
  copy_block(sum, x);
  for (int i = 0; i < this->axes(); ++i)
    if (axes >> i & 1) along(i).all_reduce(sum).wait();
  copy_block(x, sum);
}

Exchange::Exchange(const Grid& grid, const Grid::Line& line, const Route& route, const Tensor& x, const Shape& origin,
                   MemoryKind use)
    : Exchange(grid, line, route, packed(route, x, origin), x.dtype(), x.device(), use) {}

Exchange::Exchange(const Grid& grid, const Grid::Line& line, const Route& route, const std::vector<Tensor>& sends,
                   DType dtype, Device device, MemoryKind use) {
  const MemoryScope scope(use);
  for (const auto& [peer, box] : route.recvs) {
    Tensor values = Tensor::empty(box.size, dtype, device);
    works_.push_back(grid.comm().recv(values, line.ranks[peer]));
    received_.push_back({box, std::move(values)});
  }
  for (std::size_t i = 0; i < sends.size(); ++i)
    works_.push_back(grid.comm().send(sends[i], line.ranks[route.sends[i].peer]));
}

const std::vector<Exchange::Received>& Exchange::wait() {
  for (Work& work : works_) work.wait();
  return received_;
}

Tensor cut(const Tensor& from, const Shape& origin, const Box& box) {
  const Tensor part = Tensor::empty(box.size, from.dtype(), from.device());
  copy_box(part, box.at, from, origin, box);
  return part;
}

void copy_box(const Tensor& to, const Shape& to_origin, const Tensor& values, const Shape& from_origin, const Box& box,
              bool add) {
  if (box.empty()) return;
  const Shape there = from(box.at, to_origin), here = from(box.at, from_origin);
  if (!add) return launch<kernel::CopyBox>(to, there, values, here, box.size);
  Shape zero = box.size;
  for (int i = 0; i < zero.rank(); ++i) zero[i] = 0;
  const Tensor sum = Tensor::empty(box.size, to.dtype(), to.device()), part = Tensor::like(sum);
  launch<kernel::CopyBox>(sum, zero, to, there, box.size);
  launch<kernel::CopyBox>(part, zero, values, here, box.size);
  add_into(sum, part);
  launch<kernel::CopyBox>(to, there, sum, zero, box.size);
}

}  // namespace trireme
