#include "parallel/inference/dense_net.h"

#include <algorithm>
#include <cstring>

#include "framework/autograd/tape.h"
#include "framework/tensor/launch.h"
#include "kernels/contracts/elementwise.h"
#include "kernels/contracts/mixed_scale.h"
#include "parallel/inference/chain_net.h"

namespace trireme {
namespace {
double dense_cells(const Box& box) { return static_cast<double>(box.size.product(1, box.size.rank() - 1)); }
}  // namespace

DenseNet::DenseNet(DenseLayers layers, const Shape& volume, DType dtype)
    : VolumeNet(volume, dtype), net_(std::move(layers)) {
  const NoGrad off;
  const std::size_t depth = net_.weight.size();
  check(depth > 0 && net_.bias.size() == depth && net_.dilations.size() == depth, "infer",
        "{} filters, {} biases and {} dilations of a mixed-scale dense network: expected one of each per layer", depth,
        net_.bias.size(), net_.dilations.size());
  channels_.push_back(volume[-1]);
  for (std::size_t i = 0; i < depth; ++i) {
    Tensor& w = net_.weight[i];
    check(w.rank() == volume.rank() && w.dim(-1) == channels_.back(), "infer",
          "layer {} of the network has a filter {}, expected one of {} spatial axes over {} channels: the volume is {}",
          i, w.shape(), volume.rank() - 2, channels_.back(), volume);
    for (int axis = 1; axis < w.rank() - 1; ++axis)
      check(w.dim(axis) == 3, "infer", "layer {} of the network has a filter {}, expected 3 taps along each axis", i,
            w.shape());
    w = w.detach().to(dtype);
    if (net_.bias[i]) net_.bias[i] = net_.bias[i].detach().to(dtype);
    channels_.push_back(channels_.back() + w.dim(0));
    reaches_.push_back(reaches_.back() + net_.dilations[i]);
  }
  farthest_.assign(depth + 1, 0);
  for (std::size_t i = depth; i-- > 0;) farthest_[i] = std::max(farthest_[i + 1], net_.dilations[i]);
  Shape few = volume;
  for (int axis = 1; axis < few.rank() - 1; ++axis) few[axis] = 5;
  few[-1] = channels_.back();
  const ChainNet tail(net_.tail, few, dtype);
  check(tail.reach() == Extents{0, 0, 0} && tail.output().product(0, few.rank() - 1) == few.product(0, few.rank() - 1),
        "infer", "what follows the layers of the network reads more than the voxel that it makes");
  const Box all = whole_box(tail.output());
  tail_operations_ = tail.cost(0, 1, all).operations / dense_cells(all);
  output_[-1] = tail.output()[-1];
  for (int s = 0; s < volume.rank() - 2; ++s) reach_[static_cast<std::size_t>(s)] = cells_between(0, this->layers());
}

Box DenseNet::grown(const Box& box, Index by) const {
  Box wide = box;
  for (int axis = 1; axis < box.at.rank() - 1; ++axis) {
    wide.at[axis] = std::max<Index>(0, box.at[axis] - by);
    wide.size[axis] = std::min(input_[axis], box.at[axis] + box.size[axis] + by) - wide.at[axis];
  }
  return wide;
}

Box DenseNet::of_channels(Box box, Index first, Index last) const {
  box.at[-1] = first;
  box.size[-1] = last - first;
  return box;
}

double DenseNet::bytes(const Box& box) const {
  return static_cast<double>(box.size.numel()) * static_cast<double>(size_of(dtype_));
}

Box DenseNet::reads(int first, int last, const Box& out) const {
  return of_channels(grown(out, cells_between(first, last)), 0, channels(first));
}

double DenseNet::operations(int i, const Box& out) const {
  const Shape& w = net_.weight[static_cast<std::size_t>(i)].shape();
  double taps = 1;  // summed over all positions; taps beyond the volume are left out
  for (int axis = 1; axis < out.at.rank() - 1; ++axis) {
    double along = 0;
    for (Index tap = -1; tap <= 1; ++tap) {
      const Index begin = out.at[axis] + tap * net_.dilations[static_cast<std::size_t>(i)];
      const Index end = std::min(input_[axis], begin + out.size[axis]);
      along += static_cast<double>(std::max<Index>(0, end - std::max<Index>(0, begin)));
    }
    taps *= along;
  }
  return 2 * static_cast<double>(w[0] * w[w.rank() - 1]) * taps;
}

BoxCost DenseNet::cost(int first, int last, const Box& out) const {
  BoxCost cost;
  const Box in = reads(first, last, out);
  for (int i = first; i < last; ++i) {
    const Box made = grown(out, cells_between(i + 1, last));
    cost.voxels += dense_cells(made);
    cost.operations += operations(i, made);
  }
  const double block = bytes(of_channels(in, 0, channels(last)));
  double behind = bytes(of_channels(out, channels(first), channels(last)));
  if (last == layers()) {
    cost.voxels += dense_cells(out);
    cost.operations += tail_operations_ * dense_cells(out);
    behind = bytes(of_channels(out, 0, output_[-1])) +
             static_cast<double>(piece * (channels(last) + output_[-1]) * size_of(dtype_));
  }
  const double row = bytes(in) / static_cast<double>(in.size[1]);
  // Features are read from the file range by range, and joined along the channels.
  const double stretches = static_cast<double>(channels(first) - channels(0)) / static_cast<double>(channels(first));
  const double taken = std::min(bytes(in), std::max(slab, row)) * (1 + stretches);
  cost.memory = block + std::max(taken, behind);
  return cost;
}

void DenseNet::fill(const Tensor& block, const Box& at, const Box& in, const ReadBox& read) const {
  const double row = bytes(in) / static_cast<double>(in.size[1]);
  const Index rows = std::max<Index>(1, static_cast<Index>(slab / row)), end = in.at[1] + in.size[1];
  Box part = in;
  for (; part.at[1] < end; part.at[1] += rows) {
    part.size[1] = std::min(rows, end - part.at[1]);
    copy_box(block, at.at, read(part), part.at, part);
  }
}

void DenseNet::run_layer(int i, const Tensor& block, const Box& at, const Box& out) const {
  if (out.size.product(1, out.size.rank() - 1) == 0) return;
  const auto l = static_cast<std::size_t>(i);
  MixedScaleOptions o{.channels = channels(i), .outputs = net_.weight[l].dim(0), .dilation = net_.dilations[l]};
  for (int axis = 1; axis < out.at.rank() - 1; ++axis) {
    const auto s = static_cast<std::size_t>(axis - 1);
    o.begin[s] = out.at[axis] - at.at[axis];
    o.size[s] = out.size[axis];
  }
  const Tensor& bias = net_.bias[l];
  launch<kernel::MixedScaleLayer>(block, net_.weight[l], bias ? bias.view() : View{}, o);
}

Tensor DenseNet::run_tail(const Tensor& block, const Box& at, const Box& out) const {
  const Tensor y = Tensor::empty(of_channels(out, 0, output_[-1]).size, dtype_);
  const int axes = out.at.rank() - 2;
  Shape shape = block.shape();
  for (int axis = 1; axis < axes; ++axis) shape[axis] = 1;
  shape[axes] = piece;
  const Tensor few = Tensor::zeros(shape, dtype_);
  const auto voxel = static_cast<std::size_t>(block.dim(-1) * size_of(dtype_));
  const auto result = static_cast<std::size_t>(output_[-1] * size_of(dtype_));
  const std::byte* from = block.data<std::byte>();
  std::byte *to = y.data<std::byte>(), *here = few.data<std::byte>();
  const Index width = out.size[axes], rows = out.size.product(1, axes);
  Index taken = 0;  // number of voxels in `few`
  const auto flush = [&] {
    if (taken == 0) return;
    const Tensor made = net_.tail(few.detach());
    std::memcpy(to, made.data<std::byte>(), static_cast<std::size_t>(taken) * result);
    to += static_cast<std::size_t>(taken) * result;
    taken = 0;
  };
  for (Index row = 0; row < rows; ++row) {
    Index first = 0, stride = 1, rest = row;  // the row's first voxel in the block
    for (int axis = axes; axis >= 1; --axis) {
      const Index i = axis == axes ? 0 : rest % out.size[axis];
      if (axis < axes) rest /= out.size[axis];
      first += (out.at[axis] - at.at[axis] + i) * stride;
      stride *= at.size[axis];
    }
    for (Index x = 0; x < width;) {
      const Index n = std::min(width - x, piece - taken);
      std::memcpy(here + static_cast<std::size_t>(taken) * voxel, from + static_cast<std::size_t>(first + x) * voxel,
                  static_cast<std::size_t>(n) * voxel);
      x += n;
      taken += n;
      if (taken == piece) flush();
    }
  }
  flush();
  return y;
}

Tensor DenseNet::run(int first, int last, const ReadBox& read, const Box& out) const {
  const Box in = reads(first, last, out), at = of_channels(in, 0, channels(last));
  const Tensor block = Tensor::empty(at.size, dtype_);
  fill(block, at, in, read);
  for (int i = first; i < last; ++i) run_layer(i, block, at, grown(out, cells_between(i + 1, last)));
  if (last == layers()) return run_tail(block, at, out);
  return cut(block, at.at, of_channels(out, channels(first), channels(last)));
}

Box DenseNet::share(const Division& division, const Extents& at) const {
  Box box = whole_box(output_);
  for (int axis = 1; axis < box.at.rank() - 1; ++axis) {
    const auto s = static_cast<std::size_t>(axis - 1);
    check(output_[axis] >= division.parts[s], "infer",
          "the mesh has {} ranks along axis {} of the volume, which has {} cells: at most {} ranks would work",
          division.parts[s], axis - 1, output_[axis], output_[axis]);
    const auto [begin, end] = even_share(output_[axis], static_cast<int>(division.parts[s]), static_cast<int>(at[s]));
    box.at[axis] = begin;
    box.size[axis] = end - begin;
  }
  return box;
}

std::vector<ShareStep> DenseNet::steps(const Division& division, const std::vector<Extents>& places) const {
  std::vector<Box> own;
  for (const Extents& at : places) own.push_back(share(division, at));
  std::vector<ShareStep> all(static_cast<std::size_t>(layers()));
  for (int i = 0; i < layers(); ++i) {
    ShareStep& step = all[static_cast<std::size_t>(i)];
    const Index halo = farthest(i + 1);
    for (const Box& box : own) {
      step.operations.push_back(operations(i, box) + (i + 1 == layers() ? tail_operations_ * dense_cells(box) : 0));
      if (halo == 0 || division.parts == Extents{1, 1, 1}) continue;
      step.have.push_back(of_channels(box, channels(i), channels(i + 1)));
      step.want.push_back(grown(step.have.back(), halo));
    }
  }
  return all;
}

ShareCost DenseNet::cost(const Division& division) const {
  ShareCost all;
  const std::vector<Extents> places = places_of(division);
  const std::vector<ShareStep> all_steps = steps(division, places);
  for (std::size_t r = 0; r < places.size(); ++r) {
    const Box mine = share(division, places[r]);
    BoxCost cost{.voxels = static_cast<double>(layers() + 1) * dense_cells(mine)};
    double sent = 0, most_moved = 0;
    for (const ShareStep& step : all_steps) {
      cost.operations += step.operations[r];
      if (step.have.empty()) continue;
      double out = 0, in = 0;
      const Route there = route(step.have, step.want, static_cast<int>(r));
      for (const auto& [peer, box] : there.sends) out += bytes(box);
      for (const auto& [peer, box] : there.recvs) in += bytes(box);
      sent += out;
      most_moved = std::max(most_moved, out + in);
    }
    const Box held = of_channels(grown(mine, farthest(0)), 0, channels(layers()));
    const Box in = of_channels(held, 0, channels(0));
    const double row = bytes(in) / static_cast<double>(std::max<Index>(1, in.size[1]));
    const double tail = bytes(mine) + static_cast<double>(piece * (channels(layers()) + output_[-1]) * size_of(dtype_));
    cost.memory = bytes(held) + std::max(std::min(bytes(in), std::max(slab, row)), tail) + most_moved;
    all.most = {std::max(all.most.voxels, cost.voxels), std::max(all.most.operations, cost.operations),
                std::max(all.most.memory, cost.memory)};
    all.voxels += cost.voxels;
    all.sent += sent;
    all.most_sent = std::max(all.most_sent, sent);
  }
  for (const ShareStep& step : all_steps) all.messages += !step.have.empty();
  return all;
}

Tensor DenseNet::run(const Division& division, const Grid& grid, const ReadBox& read) const {
  const Grid::Line line = grid.line(axes_of(division));
  std::vector<Extents> places;
  for (const auto& at : line.at) places.push_back(place_of(division, at));
  const Box mine = share(division, places[static_cast<std::size_t>(line.me)]);
  const Box at = of_channels(grown(mine, farthest(0)), 0, channels(layers()));
  const Tensor block = Tensor::empty(at.size, dtype_);
  fill(block, at, of_channels(at, 0, channels(0)), read);
  int layer = 0;
  for (const ShareStep& step : steps(division, places)) {
    run_layer(layer++, block, at, mine);
    if (!step.have.empty()) (void)exchange_into(grid, line, block, at.at, step.have, step.want);
  }
  return run_tail(block, at, mine);
}

}  // namespace trireme
