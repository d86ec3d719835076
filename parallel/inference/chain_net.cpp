#include "parallel/inference/chain_net.h"

#include <algorithm>
#include <any>
#include <numeric>
#include <optional>

#include "framework/layers/inference.h"
#include "framework/tensor/launch.h"
#include "framework/tensor/memory_tracker.h"
#include "kernels/core/skip_copies.h"
#include "parallel/model/dry_run.h"

namespace trireme {
namespace {

/// Evaluation without values: kernels are counted and not run.
class Shapes {
 public:
  Shapes()
      : evaluation_([] {
          StepContext context = StepContext::current();
          context.batch.training = false;
          return context;
        }()),
        watch_([this](const LaunchWatch::Call& call) { operations_ += operations_of(call); }, LaunchWatch::Mode::dry) {}
  double take_operations() { return std::exchange(operations_, 0); }

 private:
  StepScope evaluation_;
  NoGrad no_grad_;
  SkipCopies copies_;
  double operations_ = 0;
  LaunchWatch watch_;
};

double chain_cells(const Shape& s) { return static_cast<double>(s.product(1, s.rank() - 1)); }

/// Upper bound of bytes of packed filters that kernels keep for a part (FilterCache), for a result of that many cells.
/// Channels are in blocks of 16. Filters of 3 x 3 taps that are transformed take four times as much (Winograd's F(4 x
/// 4, 3 x 3): 36 numbers for 9, from 64 tiles on).
double packed_bytes(const std::vector<TracedOp>& ops, double chain_cells) {
  double bytes = 0;
  for (const TracedOp& op : ops) {
    if (std::string_view(op.name) != "conv") continue;
    const Shape& w = op.inputs[1].shape();
    const auto& o = std::any_cast<const ConvOptions&>(op.detail);
    const auto in_blocks = [](Index channels) { return (channels + 15) / 16 * 16; };
    const bool transformed = chain_cells > 49 * 16 && w.rank() == 4 && w[1] == 3 && w[2] == 3 && w[0] % 16 == 0 &&
                             w[3] % 16 == 0 && o.groups == 1 && o.stride == Extents{1, 1, 1} &&
                             o.dilation == Extents{1, 1, 1} && op.output.dtype() == DType::f32;
    bytes += static_cast<double>(in_blocks(w[0]) * in_blocks(w[w.rank() - 1]) * w.product(1, w.rank() - 1) *
                                 size_of(op.output.dtype())) *
             (transformed ? 4 : 1);
  }
  return bytes;
}

}  // namespace

ChainNet::ChainNet(Module model, const Shape& volume, DType dtype)
    : VolumeNet(volume, dtype), chain_(std::move(model)) {
  const int axes = volume.rank() - 2;
  for (Index most = axes == 3 ? 64 : 256;; most *= 2) {  // the smallest volume that the model accepts
    Shape probe = volume;
    for (int axis = 1; axis <= axes; ++axis) probe[axis] = std::min(probe[axis], most);
    try {
      trace(probe);
      break;
    } catch (const Error& e) {
      if (probe == volume) fail(e.kind(), "infer", "the model does not take the volume {}: {}", volume, e.what());
    }
  }
  last_use_.assign(shapes_.size(), 0);
  for (std::size_t p = 0; p < parts_.size(); ++p)
    for (const int t : parts_[p].reads) last_use_[static_cast<std::size_t>(t)] = p;
  output_ = shapes_.back();
  last_use_.back() = parts_.size();
  for (std::size_t s = 0; s < static_cast<std::size_t>(axes); ++s) {
    for (const auto& scale : scales_) alignment_[s] = std::lcm(alignment_[s], scale[s].second);
    const auto [up, down] = scales_.back()[s];
    granularity_[s] = std::max<Index>(1, alignment_[s] * up / down);
  }
  Box middle = whole_box(output_);
  for (int axis = 1; axis <= axes; ++axis) {
    const Index grain = std::min(granularity_[static_cast<std::size_t>(axis - 1)], output_[axis]);
    middle.at[axis] = output_[axis] / 2 / grain * grain;
    middle.size[axis] = std::min(grain, output_[axis] - middle.at[axis]);
  }
  const Box read = reads(0, 1, middle);
  for (int axis = 1; axis <= axes; ++axis) {
    const auto s = static_cast<std::size_t>(axis - 1);
    const auto [up, down] = scales_.back()[s];
    const Index begin = middle.at[axis] * down / up, end = (middle.at[axis] + middle.size[axis]) * down / up;
    reach_[s] = std::max<Index>({0, begin - read.at[axis], read.at[axis] + read.size[axis] - end});
  }
}

void ChainNet::trace(const Shape& probe) {
  parts_.clear();
  shapes_.assign(1, input_);
  scales_.clear();
  kept_ = 0;
  std::array<std::pair<Index, Index>, 3> one;
  one.fill({1, 1});
  scales_.push_back(one);
  std::map<std::string, int> stash;  // index of stashed tensors, by name
  Shapes dry;
  const Tensor x = Tensor::empty(probe, dtype_);
  std::vector<Tensor> values{x};  // of the probe
  const MemoryTracker tracker;
  const MemoryScope counted(tracker);
  const Inference inference;
  int main = 0;
  for (int p = 0; p < chain_.size(); ++p) {
    Stashed before;
    for (const auto& [name, t] : stash) before.emplace(name, values[static_cast<std::size_t>(t)].detach());
    const Tensor in = values[static_cast<std::size_t>(main)].detach();
    Stashed after = before;
    std::vector<TracedOp> ops;
    Tensor y;
    {
      Trace trace;
      y = chain_.run(p, in, after);
      ops = std::move(trace.ops);
    }
    for (const auto& [name, t] : after)
      if (!before.contains(name)) stash[name] = main;
    std::vector<Tensor> inputs{in};
    std::vector<int> reads{main};
    std::vector<std::string> names;
    for (const auto& [name, t] : before) {
      if (after.contains(name)) continue;
      inputs.push_back(t);
      reads.push_back(stash[name]);
      names.push_back(name);
      stash.erase(name);
    }
    if (y.id() == in.id()) continue;  // a Stash, or dropout
    const std::string layer = "part " + std::to_string(p);
    Part part{p, Reach(layer, ops, inputs, y), reads, names, static_cast<int>(shapes_.size()), y.shape(), 0, 0};
    kept_ += packed_bytes(ops, chain_cells(part.reach.output(shapes_of(reads))));
    ops.clear();
    for (int again = 0; again < 2; ++again) {  // as without a Trace, with filters already packed
      (void)dry.take_operations();
      Stashed rest = before;
      MemoryTracker inner;
      const MemoryScope scope(inner);
      Tensor result = chain_.run(p, in, rest);
      part.memory = static_cast<double>(inner.peak(MemoryKind::activations) - result.view().bytes());
      result = {};
      rest.clear();
      if (again == 0) kept_ += static_cast<double>(inner.now(MemoryKind::activations));  // stored by the Inference
    }
    part.operations = dry.take_operations();
    shapes_.push_back(part.reach.output(shapes_of(reads)));
    auto scale = scales_[static_cast<std::size_t>(main)];
    for (int s = 0; s < probe.rank() - 2; ++s) {
      const auto [up, down] = part.reach.scale(0, s);
      auto& [all_up, all_down] = scale[static_cast<std::size_t>(s)];
      all_up *= up;
      all_down *= down;
      const Index common = std::gcd(all_up, all_down);
      all_up /= common;
      all_down /= common;
    }
    scales_.push_back(scale);
    values.push_back(y);
    main = part.output;
    parts_.push_back(std::move(part));
  }
  check(!parts_.empty(), "infer", "the model has no layer that computes anything");
}

std::vector<Shape> ChainNet::shapes_of(const std::vector<int>& tensors) const {
  std::vector<Shape> shapes;
  for (const int t : tensors) shapes.push_back(shapes_[static_cast<std::size_t>(t)]);
  return shapes;
}

std::vector<Box> ChainNet::patches(const Part& part, const Box& out) const {
  return part.reach.reads(out, shapes_of(part.reads));
}

std::vector<Box> ChainNet::needs(const Box& out) const {
  std::vector<Box> need;
  for (const Shape& shape : shapes_) {
    need.push_back({whole_box(shape).at, Shape(shape)});
    need.back().size[0] = 0;
  }
  need.back() = out;
  for (std::size_t p = parts_.size(); p-- > 0;) {
    const Part& part = parts_[p];
    const Box& made = need[static_cast<std::size_t>(part.output)];
    if (made.empty()) continue;
    const std::vector<Box> in = patches(part, made);
    for (std::size_t i = 0; i < in.size(); ++i) {
      Box& n = need[static_cast<std::size_t>(part.reads[i])];
      n = hull(n, in[i]);
    }
  }
  return need;
}

Box ChainNet::reads(int, int, const Box& out) const { return needs(out)[0]; }

double ChainNet::bytes(const Box& box) const {
  return static_cast<double>(box.size.numel()) * static_cast<double>(size_of(dtype_));
}

/// held: bytes of each tensor while the part runs.
void ChainNet::add_cost(const Part& part, const Box& out, const std::vector<double>& held, BoxCost& cost) const {
  if (out.empty()) return;
  const std::vector<Box> in = patches(part, out);
  const Box made = part.reach.computed(in, shapes_of(part.reads));
  const double grown = chain_cells(made.size) / chain_cells(part.probe);
  cost.voxels += chain_cells(made.size);
  cost.operations += part.operations * grown;
  double now = kept_ + std::accumulate(held.begin(), held.end(), 0.0) + bytes(made) + part.memory * grown;
  for (std::size_t i = 0; i < in.size(); ++i)  // copies of patches, if the tensor is larger
    if (bytes(in[i]) < held[static_cast<std::size_t>(part.reads[i])]) now += bytes(in[i]);
  if (!(made.size == out.size)) now = std::max(now, now - part.memory * grown + bytes(out));
  cost.memory = std::max(cost.memory, now);
}

BoxCost ChainNet::cost(int, int, const Box& out) const {
  const std::vector<Box> need = needs(out);
  std::vector<double> held(shapes_.size(), 0.0);
  held[0] = bytes(need[0]);
  BoxCost cost;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const auto made = static_cast<std::size_t>(parts_[p].output);
    add_cost(parts_[p], need[made], held, cost);
    held[made] = bytes(need[made]);
    for (std::size_t t = 0; t < held.size(); ++t)
      if (last_use_[t] <= p) held[t] = 0;
  }
  return cost;
}

Tensor ChainNet::run(const Part& part, const Box& out, const std::vector<Tensor>& held,
                     const std::vector<Box>& at) const {
  const std::vector<Box> in = patches(part, out);
  const auto taken = [&](std::size_t i) {
    const auto t = static_cast<std::size_t>(part.reads[i]);
    return at[t] == in[i] ? held[t].detach() : cut(held[t], at[t].at, in[i]);
  };
  Tensor x = taken(0);
  Stashed stashed;
  for (std::size_t i = 1; i < in.size(); ++i) stashed.emplace(part.stashed[i - 1], taken(i));
  const Box made = part.reach.computed(in, shapes_of(part.reads));
  const Tensor y = chain_.run(part.index, std::move(x), stashed);
  check(y.shape() == made.size, "infer", "part {} made {} of a patch, expected {}", part.index, y.shape(), made.size);
  return made == out ? y : cut(y, made.at, out);
}

void ChainNet::release(std::size_t part, std::vector<Tensor>& held) const {
  for (std::size_t t = 0; t < held.size(); ++t)
    if (last_use_[t] <= part) held[t] = {};
}

Tensor ChainNet::run(int, int, const ReadBox& read, const Box& out) const {
  const std::vector<Box> need = needs(out);
  std::vector<Tensor> held(shapes_.size());
  held[0] = read(need[0]);
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const auto made = static_cast<std::size_t>(parts_[p].output);
    if (!need[made].empty()) held[made] = run(parts_[p], need[made], held, need);
    release(p, held);
  }
  return held.back();
}

Box ChainNet::own(int tensor, const Division& division, const Extents& at) const {
  const Shape& shape = shapes_[static_cast<std::size_t>(tensor)];
  Box box = whole_box(shape);
  for (int axis = 1; axis < shape.rank() - 1; ++axis) {
    const auto s = static_cast<std::size_t>(axis - 1);
    const Index blocks = (input_[axis] + alignment_[s] - 1) / alignment_[s], ranks = division.parts[s];
    check(
        blocks >= ranks, "infer",
        "the mesh has {} ranks along axis {} of the volume, which has {} cells{}: at most {} ranks would work", ranks,
        axis - 1, input_[axis],
        [&] { return alignment_[s] > 1 ? fmt::format(", to be cut at multiples of {}", alignment_[s]) : ""; }, blocks);
    const auto [begin, end] = even_share(blocks, static_cast<int>(ranks), static_cast<int>(at[s]));
    const auto [up, down] = scales_[static_cast<std::size_t>(tensor)][s];
    const auto cell = [&](Index block) { return std::min(shape[axis], block * alignment_[s] * up / down); };
    box.at[axis] = cell(begin);
    box.size[axis] = (end == blocks ? shape[axis] : cell(end)) - box.at[axis];
  }
  return box;
}

Box ChainNet::share(const Division& division, const Extents& at) const {
  return own(static_cast<int>(shapes_.size()) - 1, division, at);
}

Box ChainNet::wanted(int tensor, const Division& division, const Extents& at) const {
  Box want = own(tensor, division, at);
  for (const Part& part : parts_) {
    const Box made = own(part.output, division, at);
    if (made.empty() || std::ranges::find(part.reads, tensor) == part.reads.end()) continue;
    const std::vector<Box> in = patches(part, made);
    for (std::size_t i = 0; i < in.size(); ++i)
      if (part.reads[i] == tensor) want = hull(want, in[i]);
  }
  return want;
}

std::vector<ShareStep> ChainNet::steps(const Division& division, const std::vector<Extents>& places) const {
  std::vector<ShareStep> all;
  for (const Part& part : parts_) {
    ShareStep& step = all.emplace_back();
    for (const Extents& at : places) {
      const Box made = own(part.output, division, at);
      BoxCost cost;
      add_cost(part, made, std::vector<double>(shapes_.size(), 0.0), cost);
      step.operations.push_back(cost.operations);
      step.have.push_back(made);
      step.want.push_back(wanted(part.output, division, at));
    }
    if (step.have == step.want) {
      step.have.clear();
      step.want.clear();
    }
  }
  return all;
}

ShareCost ChainNet::cost(const Division& division) const {
  ShareCost all;
  const std::vector<Extents> places = places_of(division);
  const std::vector<ShareStep> all_steps = steps(division, places);
  for (std::size_t r = 0; r < places.size(); ++r) {
    BoxCost cost;
    double sent = 0;
    std::vector<double> held(shapes_.size(), 0.0);
    held[0] = bytes(wanted(0, division, places[r]));
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      const ShareStep& step = all_steps[p];
      const auto made = static_cast<std::size_t>(parts_[p].output);
      const Box mine = own(parts_[p].output, division, places[r]);
      add_cost(parts_[p], mine, held, cost);
      held[made] = bytes(step.want.empty() ? mine : step.want[r]);
      if (!step.have.empty()) {
        double out = 0, in = 0;
        const Route there = route(step.have, step.want, static_cast<int>(r));
        for (const auto& [peer, box] : there.sends) out += bytes(box);
        for (const auto& [peer, box] : there.recvs) in += bytes(box);
        const double held_now = kept_ + std::accumulate(held.begin(), held.end(), 0.0);
        cost.memory = std::max(cost.memory, held_now + std::max(bytes(mine), out + in));
        sent += out;
      }
      for (std::size_t t = 0; t < held.size(); ++t)
        if (last_use_[t] <= p) held[t] = 0;
    }
    all.most = {std::max(all.most.voxels, cost.voxels), std::max(all.most.operations, cost.operations),
                std::max(all.most.memory, cost.memory)};
    all.voxels += cost.voxels;
    all.sent += sent;
    all.most_sent = std::max(all.most_sent, sent);
  }
  for (const ShareStep& step : all_steps) all.messages += !step.have.empty();
  return all;
}

Tensor ChainNet::run(const Division& division, const Grid& grid, const ReadBox& read) const {
  const Grid::Line line = grid.line(axes_of(division));
  std::vector<Extents> places;
  for (const auto& at : line.at) places.push_back(place_of(division, at));
  const auto me = static_cast<std::size_t>(line.me);
  const std::vector<ShareStep> all_steps = steps(division, places);
  std::vector<Tensor> held(shapes_.size());
  std::vector<Box> at(shapes_.size());
  at[0] = wanted(0, division, places[me]);
  held[0] = read(at[0]);
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const Part& part = parts_[p];
    const auto made = static_cast<std::size_t>(part.output);
    const ShareStep& step = all_steps[p];
    const Box mine = own(part.output, division, places[me]), all = step.want.empty() ? mine : step.want[me];
    Tensor y;
    if (!mine.empty()) y = run(part, mine, held, at);
    at[made] = all;
    if (mine == all) {
      held[made] = y ? y : Tensor::empty(all.size, dtype_);
    } else {
      held[made] = Tensor::empty(all.size, dtype_);
      if (y) copy_box(held[made], all.at, y, mine.at, mine);
      y = {};
    }
    if (!step.have.empty()) (void)exchange_into(grid, line, held[made], all.at, step.have, step.want);
    release(p, held);
  }
  return held.back();
}

}  // namespace trireme
