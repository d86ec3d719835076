#include "parallel/inference/reach.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "kernels/formulas/pointwise.h"

namespace trireme {
namespace {

Index floor_div(Index a, Index b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

template <class F>
struct Named {
  static constexpr const char* name = F::name;
};
template <class... F>
void add_names(std::set<std::string>& names, const std::tuple<F...>&) {
  (names.insert(F::name), ...);
}

/// Ops whose result at a position reads the operands at that position only, in all channels.
const std::set<std::string>& local_ops() {
  static const std::set<std::string> names = [] {
    std::set<std::string> all{"batch_norm", "dropout", "layer_norm", "linear", "prelu", "relu",
                              "rms_norm",   "scale",   "to",         "clamp",  "glu",   "swiglu"};
    add_names(all, pointwise::EachUnary<Named>{});
    add_names(all, pointwise::EachBinary<Named>{});
    return all;
  }();
  return names;
}

/// Whether the op joins or compares channels of one position.
bool over_channels(const TracedOp& op) {
  const std::string_view name = op.name;
  if (name != "concat" && name != "softmax" && name != "log_softmax") return false;
  const int* axis = std::any_cast<int>(&op.detail);
  return axis != nullptr && (*axis < 0 ? *axis + op.output.rank() : *axis) == op.output.rank() - 1;
}

using AxisMaps = std::array<AxisMap, 3>;

AxisMaps of_windows(AxisMap::Kind kind, const std::vector<Window>& windows, const Extents& output_pad = {0, 0, 0}) {
  AxisMaps maps;
  for (std::size_t s = 0; s < windows.size(); ++s) maps[s] = {kind, windows[s], output_pad[s]};
  return maps;
}

AxisMaps maps_of(const std::string& layer, const TracedOp& op) {
  const std::string name = op.name;
  if (name == "conv")
    return of_windows(AxisMap::Kind::window, windows(op.inputs[1].shape(), std::any_cast<ConvOptions>(op.detail)));
  if (name == "conv_transpose") {
    const auto& [o, output_pad] = std::any_cast<const std::pair<ConvOptions, Extents>&>(op.detail);
    return of_windows(AxisMap::Kind::up, windows(op.inputs[1].shape(), o), output_pad);
  }
  if (name == "max_pool" || name == "avg_pool" || name == "bias_relu_pool_dropout")
    return of_windows(AxisMap::Kind::window, windows(op.output.rank() - 2, std::any_cast<PoolOptions>(op.detail)));
  check(local_ops().contains(name) || over_channels(op), "infer",
        "layer '{}' has the op '{}', of which no box can be computed by itself: this model runs on whole volumes only",
        layer, name);
  return {};
}

/// Whether a constant operand is the same at every position.
bool without_places(const Tensor& t) { return !t || t.rank() <= 1 || t.numel() == t.dim(-1); }

}  // namespace

Index AxisMap::outputs(Index inputs) const {
  switch (kind) {
    case Kind::window: return floor_div(inputs + window.pad_begin + window.pad_end - window.reach(), window.stride) + 1;
    case Kind::up:
      return (inputs - 1) * window.stride - window.pad_begin - window.pad_end + window.reach() + output_pad;
    default: return inputs;
  }
}

CellInterval AxisMap::reads(CellInterval out) const {
  const Window& w = window;
  if (kind == Kind::window)
    return {out.begin * w.stride - w.pad_begin, (out.end - 1) * w.stride - w.pad_begin + w.reach()};
  if (kind == Kind::up) {  // padding also removes cells at the ends of a patch, so the patch must have some there
    const CellInterval read{-floor_div(w.reach() - 1 - out.begin - w.pad_begin, w.stride),
                            floor_div(out.end - 1 + w.pad_begin, w.stride) + 1};
    const Index uncut = -floor_div(w.reach() + output_pad - out.end - w.pad_begin - w.pad_end, w.stride) + 1;
    return {std::min(read.begin, floor_div(out.begin, w.stride)), std::max(read.end, uncut)};
  }
  return out;
}

Reach::Reach(const std::string& layer, const std::vector<TracedOp>& ops, const std::vector<Tensor>& inputs,
             const Tensor& output)
    : layer_(layer), inputs_(static_cast<int>(inputs.size())) {
  std::map<const void*, int> value;
  for (int i = 0; i < inputs_; ++i) value[inputs[static_cast<std::size_t>(i)].id()] = i;
  for (const TracedOp& op : ops) {
    Node node{op.name, {}, {}, op.output.dim(-1)};
    for (const Tensor& t : op.inputs)
      if (t && value.contains(t.id())) node.inputs.push_back(value[t.id()]);
    if (node.inputs.empty()) continue;  // depends on weights only
    node.axes = maps_of(layer, op);
    const bool window = node.axes[0].kind != AxisMap::Kind::same;
    for (const Tensor& t : op.inputs)
      check(window || (t && value.contains(t.id())) || std::string_view(op.name) == "linear" || without_places(t),
            "infer",
            "layer '{}': the op '{}' has an operand {} of its own for each place: this model runs on whole volumes "
            "only",
            layer, op.name, t ? t.shape() : Shape{});
    value[op.output.id()] = inputs_ + static_cast<int>(nodes_.size());
    nodes_.push_back(std::move(node));
  }
  check(value.contains(output.id()), "infer",
        "layer '{}' does not say how its result comes from its input: this model runs on whole volumes only", layer);
  output_ = value[output.id()];
}

std::vector<Shape> Reach::shapes(const std::vector<Shape>& inputs) const {
  std::vector<Shape> all = inputs;
  for (const Node& node : nodes_) {
    const Shape& in = all[node.inputs[0]];
    Shape out = in;
    out[-1] = node.channels;
    for (int axis = 1; axis < in.rank() - 1; ++axis) {
      out[axis] = node.axes[axis - 1].outputs(in[axis]);
      check(out[axis] >= 1, "infer", "layer '{}': a volume with {} cells on axis {} is too small for the op '{}'",
            layer_, in[axis], axis - 1, node.op);
      for (const int other : node.inputs)
        check(all[other][axis] == in[axis], "infer",
              "layer '{}': the op '{}' would join {} and {} cells on axis {}: the model wants extents that divide by "
              "its strides; pad the volume",
              layer_, node.op, in[axis], all[other][axis], axis - 1);
    }
    all.push_back(out);
  }
  return all;
}

std::pair<Index, Index> Reach::scale(int input, int axis, Index* alignment) const {
  std::vector<std::pair<Index, Index>> scales(inputs_ + nodes_.size());  // second 0: does not depend on the input
  scales[input] = {1, 1};
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    for (const int from : nodes_[i].inputs) {
      auto [up, down] = scales[from];
      if (down == 0) continue;
      const AxisMap& map = nodes_[i].axes[axis];
      if (map.kind == AxisMap::Kind::window) down *= map.window.stride;
      if (map.kind == AxisMap::Kind::up) up *= map.window.stride;
      const Index common = std::gcd(up, down);
      scales[inputs_ + i] = {up / common, down / common};
      if (alignment) *alignment = std::lcm(*alignment, down / common);
    }
  }
  return scales[output_];
}

std::pair<Index, Index> Reach::scale(int input, int axis) const { return scale(input, axis, nullptr); }

Index Reach::alignment(int input, int axis) const {
  Index multiple = 1;
  (void)scale(input, axis, &multiple);
  return multiple;
}

std::vector<Box> Reach::reads(const Box& out, const std::vector<Shape>& inputs) const {
  const std::vector<Shape> all = shapes(inputs);
  std::vector<Box> patches;
  for (const Shape& in : inputs) patches.push_back({in, in});
  for (Box& p : patches) {
    p.at[0] = 0;
    p.at[-1] = 0;
    p.size[0] = out.size[0];
  }
  for (int axis = 1; axis < out.at.rank() - 1; ++axis) {
    std::vector<CellInterval> need(all.size());  // empty: not needed so far
    need[output_] = {out.at[axis], out.at[axis] + out.size[axis]};
    for (std::size_t i = nodes_.size(); i-- > 0;) {
      const CellInterval made = need[inputs_ + i];
      if (made.begin == made.end) continue;
      const CellInterval read = nodes_[i].axes[axis - 1].reads(made);
      for (const int from : nodes_[i].inputs) {
        const Index extent = all[from][axis];
        const CellInterval in{std::clamp<Index>(read.begin, 0, extent - 1), std::clamp<Index>(read.end, 1, extent)};
        CellInterval& n = need[from];
        n = n.begin == n.end ? in : CellInterval{std::min(n.begin, in.begin), std::max(n.end, in.end)};
        n.end = std::max(n.end, n.begin + 1);
      }
    }
    for (int i = 0; i < inputs_; ++i) {
      const Index step = alignment(i, axis - 1), extent = inputs[i][axis];
      const Index begin = need[i].begin / step * step, end = std::min(extent, (need[i].end + step - 1) / step * step);
      patches[i].at[axis] = begin;
      patches[i].size[axis] = std::max<Index>(end, std::min(begin + 1, extent)) - begin;
    }
  }
  return patches;
}

Box Reach::computed(const std::vector<Box>& patches, const std::vector<Shape>&) const {
  std::vector<Box> all = patches;
  for (const Node& node : nodes_) {
    const Box& in = all[node.inputs[0]];
    Box out = in;
    out.size[-1] = node.channels;
    for (int axis = 1; axis < in.at.rank() - 1; ++axis) {
      const AxisMap& map = node.axes[axis - 1];
      out.at[axis] = map.origin(in.at[axis]);
      out.size[axis] = map.outputs(in.size[axis]);
      for (const int other : node.inputs)
        check(all[other].at[axis] == in.at[axis] && all[other].size[axis] == in.size[axis], "infer",
              "layer '{}': the op '{}' joins tensors that reach differently far: this model runs on whole volumes only",
              layer_, node.op);
    }
    all.push_back(out);
  }
  return all[output_];
}

}  // namespace trireme
