#include "parallel/split/windows.h"

namespace trireme {

std::vector<Window> windows(const Shape& filter, const ConvOptions& o) {
  std::vector<Window> all;
  for (std::size_t s = 0; s + 2 < static_cast<std::size_t>(filter.rank()); ++s)
    all.push_back({filter[static_cast<int>(s) + 1], o.stride[s], o.pad_begin[s], o.pad_end[s], o.dilation[s]});
  return all;
}

std::vector<Window> windows(int spatial_axes, const PoolOptions& o) {
  std::vector<Window> all;
  for (std::size_t s = 0; s < static_cast<std::size_t>(spatial_axes); ++s)
    all.push_back({o.window[s], o.stride[s], o.pad_begin[s], o.pad_end[s], o.dilation[s]});
  return all;
}

Shape outputs(const Shape& whole, const std::vector<Window>& windows) {
  Shape out = whole;
  for (std::size_t s = 0; s < windows.size(); ++s) {
    Index& extent = out[static_cast<int>(s) + 1];
    const Window& w = windows[s];
    check(w.size >= 1 && w.stride >= 1 && w.dilation >= 1 && w.outputs(extent) >= 1, "split",
          "a window of {} (dilation {}, stride {}) does not fit {} and its padding {} and {} on spatial axis {}",
          w.size, w.dilation, w.stride, whole, w.pad_begin, w.pad_end, s);
    extent = w.outputs(extent);
  }
  return out;
}

Patch patch(const Box& out, const Box& have, const std::vector<Window>& windows, const Shape& whole) {
  Patch p{have, have.size};
  for (std::size_t s = 0; s < windows.size(); ++s) {
    const int axis = static_cast<int>(s) + 1;
    const Reads r = reads({out.at[axis], out.at[axis] + out.size[axis]}, windows[s], whole[axis]);
    p.inputs.at[axis] = r.inputs.begin, p.inputs.size[axis] = p.extents[axis] = r.inputs.size();
    p.before[s] = r.before, p.behind[s] = r.behind;
    if (r.inputs.size() == 0) p.extents[axis] = (out.size[axis] - 1) * windows[s].stride + windows[s].reach();
  }
  return p;
}

Box inner(const Box& out, const Box& have, const std::vector<Window>& windows, const Shape& whole) {
  Box core = out;
  for (std::size_t s = 0; s < windows.size(); ++s) {
    const int axis = static_cast<int>(s) + 1;
    const Range r = inner({out.at[axis], out.at[axis] + out.size[axis]}, windows[s], whole[axis],
                          {have.at[axis], have.at[axis] + have.size[axis]});
    core.at[axis] = r.begin, core.size[axis] = r.size();
  }
  return core;
}

AxisMask spatial_axes(const ShardedOps& x) {
  AxisMask axes = 0;
  for (int axis = 1; axis < x.global_shape().rank() - 1; ++axis)
    if (x.layout()[axis] != Layout::none) axes |= 1u << x.layout()[axis];
  return axes;
}

Halo::Halo(const ShardedOps& has, const ShardedOps& out, const std::vector<Window>& windows)
    : line(has.grid().line(spatial_axes(has))) {
  for (const auto& at : line.at) {
    have.push_back(has.box(at));
    want.push_back(patch(out.box(at), have.back(), windows, has.global_shape()).inputs);
  }
}

}  // namespace trireme
