#include "framework/ops/windows.h"

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

Shape transposed_outputs(const Shape& whole, const std::vector<Window>& windows, const Extents& output_pad) {
  Shape out = whole;
  for (std::size_t s = 0; s < windows.size(); ++s) {
    Index& extent = out[static_cast<int>(s) + 1];
    const Window& w = windows[s];
    check(w.size >= 1 && w.stride >= 1 && w.dilation >= 1 && w.pad_begin >= 0 && w.pad_end >= 0 && output_pad[s] >= 0 &&
              w.transposed_outputs(extent, output_pad[s]) >= 1,
          "split",
          "a transposed window of {} (dilation {}, stride {}, output padding {}) does not fit {} and its padding {} "
          "and {} on spatial axis {}",
          w.size, w.dilation, w.stride, output_pad[s], whole, w.pad_begin, w.pad_end, s);
    extent = w.transposed_outputs(extent, output_pad[s]);
  }
  return out;
}

Patch patch(const Box& out, const Box& have, const std::vector<Window>& windows, const Shape& whole) {
  Patch p{have, have.size};
  for (std::size_t s = 0; s < windows.size(); ++s) {
    const Window& w = windows[s];
    const int axis = static_cast<int>(s) + 1;
    const Index first = out.at[axis] * w.stride - w.pad_begin, span = (out.size[axis] - 1) * w.stride + w.reach();
    const Index begin = std::max<Index>(0, first), end = std::min(whole[axis], first + span);
    const bool any = begin < end;
    p.inputs.at[axis] = any ? begin : 0;
    p.inputs.size[axis] = any ? end - begin : 0;
    p.extents[axis] = any ? end - begin : span;
    p.before[s] = any ? begin - first : 0;
    p.behind[s] = any ? first + span - end : 0;
  }
  return p;
}

TransposedPatch transposed_patch(const Box& out, const Box& have, const std::vector<Window>& windows,
                                 const Shape& whole) {
  TransposedPatch p{have};
  for (std::size_t s = 0; s < windows.size(); ++s) {
    // Input i adds to the outputs [i stride - pad, i stride - pad + reach). Padding removes cells at the ends of the
    // patch's output. So the patch's first input begins at the box's first cell or before, and its last input ends at
    // the box's last cell or after, within the image.
    const Window& w = windows[s];
    const int axis = static_cast<int>(s) + 1;
    const auto ceil_div = [&](Index cells) { return cells <= 0 ? Index{0} : (cells + w.stride - 1) / w.stride; };
    const Index begin = out.at[axis] + w.pad_begin, end = begin + out.size[axis], last = whole[axis] - 1;
    const Index first = std::min({ceil_div(begin - w.reach() + 1), begin / w.stride, last});
    const Index behind = std::clamp(std::max((end - 1) / w.stride, ceil_div(end - w.reach())), first, last) + 1;
    p.inputs.at[axis] = first;
    p.inputs.size[axis] = behind - first;
    p.pad_begin[s] = begin - first * w.stride;
    const Index more = (behind - 1) * w.stride + w.reach() - end;
    p.pad_end[s] = std::max<Index>(0, more);
    p.output_pad[s] = std::max<Index>(0, -more);
  }
  return p;
}

Box inner(const Box& out, const Box& have, const std::vector<Window>& windows, const Shape& whole) {
  Box core = out;
  for (std::size_t s = 0; s < windows.size(); ++s) {
    // Output o reads [o stride - pad, o stride - pad + reach), of which the borders of the image take their part.
    const Window& w = windows[s];
    const int axis = static_cast<int>(s) + 1;
    const Index have_end = have.at[axis] + have.size[axis], room = have_end + w.pad_begin - w.reach();
    Index begin = out.at[axis], end = begin + out.size[axis];
    if (have.at[axis] > 0) begin = std::max(begin, (have.at[axis] + w.pad_begin + w.stride - 1) / w.stride);
    if (have_end < whole[axis]) end = room < 0 ? 0 : std::min(end, room / w.stride + 1);
    core.size[axis] = std::max<Index>(0, end - begin);
    if (core.size[axis] > 0) core.at[axis] = begin;
  }
  return core;
}

std::vector<Box> around(const Box& whole, const Box& core) {
  if (core.empty()) return {whole};
  std::vector<Box> boxes;
  Box rest = whole;
  for (int i = 0; i < whole.at.rank(); ++i) {
    const Index begin = rest.at[i], end = begin + rest.size[i], first = core.at[i], last = first + core.size[i];
    for (const auto& [from, to] : {std::pair{begin, first}, {last, end}}) {
      if (from == to) continue;
      Box slab = rest;
      slab.at[i] = from;
      slab.size[i] = to - from;
      boxes.push_back(slab);
    }
    rest.at[i] = first;
    rest.size[i] = core.size[i];
  }
  return boxes;
}

}  // namespace trireme
