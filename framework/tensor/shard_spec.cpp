#include "framework/tensor/shard_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

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
  return size == 1 || (!is_even() && std::ranges::all_of(ranges, [size](const Range& r) {
           return r.unit % size == 0;
         }) && std::ranges::all_of(borders, [size](Index at) { return at % size == 0; }));
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
  if (is_even()) other.ranges = {{extent}};
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

/// The runs of `extent` that the rank at a place has. A zig-zag's runs are halves of even shares: no rank is without.
std::vector<ShardSpec::Run> ShardSpec::shares_of(Index extent, int dim, const std::vector<int>& place) const {
  int parts = 1, index = 0;
  for (int axis = 0; axis < mesh_->axes(); ++axis) {
    if (placements_[axis] != dim) continue;
    parts *= mesh_->size(axis);
    index = index * mesh_->size(axis) + place[static_cast<std::size_t>(axis)];
  }
  if (parts > 1 && dim == shared_dim_ && !shares_.borders.empty())
    return {{shares_.borders[static_cast<std::size_t>(index)], shares_.borders[static_cast<std::size_t>(index) + 1]}};
  const bool tokens = (over(dim) & mesh_->context()) != 0 && (dim != shared_dim_ || shares_.tokens);
  const ContextCut cut = tokens ? mesh_->context_cut() : ContextCut::contiguous;
  if (cut == ContextCut::contiguous) return {even_share(extent, parts, index)};
  std::vector<Run> all;
  if (cut == ContextCut::striped) {
    for (Index i = index; i < extent; i += parts) all.emplace_back(i, i + 1);
    return all;
  }
  Index first = 0, last = extent;
  for (int i = 0;; ++i) {
    const auto [begin, end] = even_share(extent, parts, i);
    const Index size = end - begin, half = (size + 1) / 2;
    if (i == index) return {{first, first + half}, {last - (size - half), last}};
    first += half;
    last -= size - half;
  }
}

std::vector<ShardSpec::Run> ShardSpec::runs(int dim, const std::vector<int>& place) const {
  if (dim != shared_dim_ || shares_.ranges.empty()) return shares_of(global_[dim], dim, place);
  std::vector<Run> all;
  Index first = 0;
  for (const Shares::Range& range : shares_.ranges) {
    for (const auto& [begin, end] : shares_of(range.extent / range.unit, dim, place))
      all.emplace_back(first + begin * range.unit, first + end * range.unit);
    first += range.extent;
  }
  return all;
}

std::vector<Box> ShardSpec::boxes(const std::vector<int>& place) const {
  std::vector<Box> all{{global_, global_}};
  for (int dim = 0; dim < global_.rank(); ++dim) {
    std::vector<Box> wider;
    const std::vector<Run> mine = runs(dim, place);
    for (const Box& box : all)
      for (const auto& [begin, end] : mine) {
        wider.push_back(box);
        wider.back().at[dim] = begin;
        wider.back().size[dim] = end - begin;
      }
    all = std::move(wider);
  }
  return all;
}

Box ShardSpec::box(const std::vector<int>& place) const {
  const std::vector<Box> all = boxes(place);
  check(all.size() == 1, "split",
        "a block of {} is {} ranges of the whole, and one is expected; texts need context(cut=contiguous) here",
        global_, all.size());
  return all[0];
}

Shape ShardSpec::block(const std::vector<int>& place) const {
  Shape shape = global_;
  for (int dim = 0; dim < global_.rank(); ++dim) {
    shape[dim] = 0;
    for (const auto& [begin, end] : runs(dim, place)) shape[dim] += end - begin;
  }
  return shape;
}

std::vector<Shape> ShardSpec::origins(const std::vector<Box>& boxes) const {
  std::vector<Shape> all;
  for (const Box& box : boxes) all.push_back(box.at);
  for (int dim = 0; dim < global_.rank(); ++dim) {
    std::map<Index, Index> places;  // of each run: its extent, then where it begins in the block
    for (const Box& box : boxes) places[box.at[dim]] = std::max(places[box.at[dim]], box.size[dim]);
    Index sum = 0;
    for (auto& [at, place] : places) place = std::exchange(sum, sum + place);
    for (Shape& origin : all) origin[dim] -= places[origin[dim]];
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
