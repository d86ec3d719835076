#include "parallel/inference/slice_net.h"

#include <algorithm>

namespace trireme {
namespace {

Shape stacked(const Shape& picture, Index slices) {
  check(picture.rank() == 4, "infer", "a model over slices takes pictures, [1, H, W, C], this one {}", picture);
  check(slices >= 1, "infer", "{} slices, expected at least 1", slices);
  return {1, slices, picture[1], picture[2], picture[3]};
}

/// The position in a slice of a box of the volume.
Box in_slice(const Box& b) { return {{0, b.at[2], b.at[3], b.at[4]}, {1, b.size[2], b.size[3], b.size[4]}}; }
/// A box of a slice, or the same box of several slices.
Box in_volume(const Box& b, Index slice, Index slices = 1) {
  return {{0, slice, b.at[1], b.at[2], b.at[3]}, {1, slices, b.size[1], b.size[2], b.size[3]}};
}

Division in_slice(const Division& d) { return {{d.parts[1], d.parts[2], 1}, {d.axis[1], d.axis[2], -1}}; }
Extents in_slice(const Extents& at) { return {at[1], at[2], 0}; }

}  // namespace

SliceNet::SliceNet(std::shared_ptr<const VolumeNet> net, Index slices)
    : VolumeNet(stacked(net->input(), slices), net->dtype()), net_(std::move(net)) {
  output_ = stacked(net_->output(), slices);
  for (std::size_t s = 1; s < 3; ++s) {
    granularity_[s] = net_->granularity()[s - 1];
    reach_[s] = net_->reach()[s - 1];
  }
}

double SliceNet::bytes(const Box& box) const {
  return static_cast<double>(box.size.numel()) * static_cast<double>(size_of(dtype_));
}

template <class Run>
Tensor SliceNet::each_slice(const ReadBox& read, const Box& out, Run&& run) const {
  Tensor all;
  for (Index i = 0; i < out.size[1]; ++i) {
    const Index slice = out.at[1] + i;
    const Tensor y = run([&](const Box& box) { return read(in_volume(box, slice)).reshape(box.size); });
    Shape shape = out.size;
    shape[1] = 1;
    if (out.size[1] == 1) return y.reshape(shape);
    if (i == 0) all = Tensor::empty(out.size, dtype_);
    Box here = out;
    here.at[1] = slice;
    here.size[1] = 1;
    copy_box(all, out.at, y.reshape(shape), here.at, here);
  }
  return all ? all : Tensor::empty(out.size, dtype_);
}

Box SliceNet::reads(int first, int last, const Box& out) const {
  return in_volume(net_->reads(first, last, in_slice(out)), out.at[1], out.size[1]);
}

BoxCost SliceNet::cost(int first, int last, const Box& out) const {
  BoxCost cost = net_->cost(first, last, in_slice(out));
  const auto slices = static_cast<double>(out.size[1]);
  cost.voxels *= slices;
  cost.operations *= slices;
  if (slices > 1) cost.memory += bytes(out);
  return cost;
}

Tensor SliceNet::run(int first, int last, const ReadBox& read, const Box& out) const {
  return each_slice(read, out, [&](const ReadBox& slice) { return net_->run(first, last, slice, in_slice(out)); });
}

Box SliceNet::share(const Division& division, const Extents& at) const {
  check(output_[1] >= division.parts[0], "infer",
        "the mesh has {} ranks along axis 0 of the volume, which has {} slices: at most {} ranks would work",
        division.parts[0], output_[1], output_[1]);
  const auto [begin, end] = even_share(output_[1], static_cast<int>(division.parts[0]), static_cast<int>(at[0]));
  return in_volume(net_->share(in_slice(division), in_slice(at)), begin, end - begin);
}

ShareCost SliceNet::cost(const Division& division) const {
  ShareCost cost = net_->cost(in_slice(division));
  Index slices = 0;
  double result = 0;  // bytes, of the rank with most
  for (const Extents& at : places_of(division)) {
    const Box box = share(division, at);
    slices = std::max(slices, box.size[1]);
    result = std::max(result, bytes(box));
  }
  const auto most = static_cast<double>(slices), all = static_cast<double>(output_[1]);
  cost.most.voxels *= most;
  cost.most.operations *= most;
  cost.most_sent *= most;
  if (slices > 1) cost.most.memory += result;
  cost.voxels *= all;
  cost.sent *= all;
  cost.messages *= static_cast<int>(slices);
  return cost;
}

std::vector<ShareStep> SliceNet::steps(const Division& division, const std::vector<Extents>& places) const {
  std::vector<Extents> inside;
  std::vector<Box> own;
  Index most = 0;
  for (const Extents& at : places) {
    inside.push_back(in_slice(at));
    own.push_back(share(division, at));
    most = std::max(most, own.back().size[1]);
  }
  const std::vector<ShareStep> each = net_->steps(in_slice(division), inside);
  std::vector<ShareStep> all;
  for (Index i = 0; i < most; ++i)
    for (ShareStep step : each) {
      for (std::size_t r = 0; r < places.size(); ++r) {
        const Index here = i < own[r].size[1] ? 1 : 0;  // otherwise the rank has no slice left
        step.operations[r] *= static_cast<double>(here);
        if (step.have.empty()) continue;
        step.have[r] = in_volume(step.have[r], own[r].at[1] + i, here);
        step.want[r] = in_volume(step.want[r], own[r].at[1] + i, here);
      }
      all.push_back(std::move(step));
    }
  return all;
}

Tensor SliceNet::run(const Division& division, const Grid& grid, const ReadBox& read) const {
  return each_slice(read, share(division, place_of(division, grid.place())),
                    [&](const ReadBox& slice) { return net_->run(in_slice(division), grid, slice); });
}

}  // namespace trireme
