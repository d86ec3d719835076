#include "framework/tensor/shard_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace trireme {

const Shape& Tensor::global_shape() const { return shard_spec() ? shard_spec()->global_shape() : shape(); }

AxisMask Placements::over(int dim) const {
  AxisMask axes = 0;
  for (std::size_t i = 0; i < dims.size(); ++i)
    if (dims[i] == dim) axes |= 1u << i;
  return axes;
}

AxisMask Placements::axes() const {
  AxisMask axes = 0;
  for (std::size_t i = 0; i < dims.size(); ++i)
    if (dims[i] != copy) axes |= 1u << i;
  return axes;
}

Placements Placements::with(int dim, AxisMask axes) const {
  Placements other = without(over(dim) | axes);
  for (std::size_t i = 0; i < dims.size(); ++i)
    if (axes >> i & 1) other.dims[i] = static_cast<std::int8_t>(dim);
  return other;
}

Placements Placements::without(AxisMask axes) const {
  Placements other = *this;
  for (std::size_t i = 0; i < dims.size(); ++i)
    if (axes >> i & 1) other.dims[i] = copy;
  return other;
}

std::pair<Index, Index> even_share(Index extent, int parts, int index) {
  return {extent * index / parts, extent * (index + 1) / parts};
}

bool Shares::fits(Index size) const {
  return size == 1 || (!empty() && std::ranges::all_of(ranges, [size](const Range& r) { return r.unit % size == 0; }) &&
                       std::ranges::all_of(borders, [size](Index at) { return at % size == 0; }));
}

Shares Shares::divided_by(Index size) const {
  Shares other = *this;
  for (Range& r : other.ranges) r = {r.extent / size, r.unit / size};
  for (Index& at : other.borders) at /= size;
  if (other.ranges.size() == 1 && other.ranges[0].unit == 1) other.ranges.clear();
  return other;
}

Shares Shares::times(Index extent, Index size) const {
  if (size == 1) return *this;
  Shares other = *this;
  if (empty()) other.ranges = {{extent}};
  for (Range& r : other.ranges) r = {r.extent * size, r.unit * size};
  for (Index& at : other.borders) at *= size;
  return other;
}

ShardSpec::ShardSpec(Mesh mesh, const Shape& global, const Placements& placements, Shares shares, int shared_dim,
                     bool weight)
    : global_(global),
      placements_(placements),
      shares_(std::move(shares)),
      shared_dim_(shared_dim),
      weight_(weight),
      summed_(weight ? mesh->summed() & ~placements.axes() : 0),
      mesh_(std::move(mesh)) {
  if (placements_.over(shared_dim_) == 0) shares_ = {};
}

ShardSpec::Ptr ShardSpec::make(Mesh mesh, const Shape& global, const Placements& placements, Shares shares,
                               int shared_dim) {
  return Ptr(new ShardSpec(std::move(mesh), global, placements, std::move(shares), shared_dim, false));
}
ShardSpec::Ptr ShardSpec::of_weight(Mesh mesh, const Shape& global, const Placements& placements, Shares shares,
                                    int shared_dim) {
  return Ptr(new ShardSpec(std::move(mesh), global, placements, std::move(shares), shared_dim, true));
}
ShardSpec::Ptr ShardSpec::summed_over(AxisMask axes) const {
  const std::shared_ptr<ShardSpec> other(new ShardSpec(*this));
  other->summed_ = axes;
  return other;
}
ShardSpec::Ptr ShardSpec::with(const Shape& global, const Placements& placements, Shares shares, int shared_dim) const {
  return make(mesh_, global, placements, std::move(shares), shared_dim);
}

Shares ShardSpec::shares(int dim) const { return dim == shared_dim_ ? shares_ : Shares{}; }

std::pair<Index, Index> ShardSpec::share(Index extent, int dim, const std::vector<int>& place) const {
  int parts = 1, index = 0;
  for (int axis = 0; axis < mesh_->axes(); ++axis) {
    if (placements_[axis] != dim) continue;
    parts *= mesh_->size(axis);
    index = index * mesh_->size(axis) + place[static_cast<std::size_t>(axis)];
  }
  if (parts > 1 && dim == shared_dim_ && !shares_.borders.empty())
    return {shares_.borders[static_cast<std::size_t>(index)], shares_.borders[static_cast<std::size_t>(index) + 1]};
  return even_share(extent, parts, index);
}

std::vector<Box> ShardSpec::boxes(const std::vector<int>& place) const {
  Box box{global_, global_};
  for (int dim = 0; dim < global_.rank(); ++dim) {
    const auto [begin, end] = share(global_[dim], dim, place);
    box.at[dim] = begin;
    box.size[dim] = end - begin;
  }
  if (shares_.ranges.empty()) return {box};
  std::vector<Box> all;
  Index first = 0;
  for (const Shares::Range& range : shares_.ranges) {
    const auto [begin, end] = share(range.extent / range.unit, shared_dim_, place);
    box.at[shared_dim_] = first + begin * range.unit;
    box.size[shared_dim_] = (end - begin) * range.unit;
    all.push_back(box);
    first += range.extent;
  }
  return all;
}

Box ShardSpec::box(const std::vector<int>& place) const {
  const std::vector<Box> all = boxes(place);
  check(all.size() == 1, "split", "a block of {} is {} ranges of the whole, and one is expected", global_, all.size());
  return all[0];
}

Shape ShardSpec::block(const std::vector<int>& place) const {
  const std::vector<Box> all = boxes(place);
  Shape shape = all[0].size;
  for (std::size_t i = 1; i < all.size(); ++i) shape[shared_dim_] += all[i].size[shared_dim_];
  return shape;
}

std::vector<Shape> ShardSpec::origins(const std::vector<Box>& boxes) const {
  std::vector<Shape> all;
  Index before = 0;
  for (const Box& box : boxes) {
    Shape origin = box.at;
    if (boxes.size() > 1) {
      origin[shared_dim_] -= before;
      before += box.size[shared_dim_];
    }
    all.push_back(origin);
  }
  return all;
}

Index ShardSpec::max_local_numel() const {
  Index most = 0;
  for (const auto& place : mesh_->line(placements_.axes()).at) most = std::max(most, block(place).numel());
  return most;
}

void ShardSpec::sum(const Tensor& x, AxisMask but) const { mesh_->sum(x, placements_.axes() & ~but); }

std::string to_string(const ShardSpec& spec) {
  std::string text = to_string(spec.global_shape());
  if (!spec.divides()) return text + " copies";
  for (int axis = 0, before = 0; axis < spec.mesh().axes(); ++axis)
    if (const int dim = spec.placements()[axis]; dim != Placements::copy)
      text += fmt::format("{} divided({}) over {}", before++ > 0 ? "," : "", dim, spec.mesh().name(axis));
  if (spec.shared_dim() < 0) return text;
  const Shares shares = spec.shares(spec.shared_dim());
  if (shares.ranges.size() > 1) text += fmt::format("; {} ranges", shares.ranges.size());
  if (!shares.ranges.empty() && shares.ranges[0].unit > 1)
    text += fmt::format("{} in units of {}", shares.ranges.size() > 1 ? "" : ";", shares.ranges[0].unit);
  if (!shares.borders.empty()) text += fmt::format("; borders {}", fmt::join(shares.borders, " "));
  return text;
}

}  // namespace trireme
