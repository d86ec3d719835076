#include "parallel/split/halo.h"

namespace trireme {

Range even_share(Index extent, int parts, int index) { return {extent * index / parts, extent * (index + 1) / parts}; }

Reads reads(Range out, const Window& w, Index extent) {
  const Index first = out.begin * w.stride - w.pad_begin;
  const Index last = (out.end - 1) * w.stride - w.pad_begin + w.reach();
  const Range inputs{std::max<Index>(0, first), std::min(extent, last)};
  if (inputs.size() == 0) return {};
  return {inputs, inputs.begin - first, last - inputs.end};
}

Range inner(Range out, const Window& w, Index extent, Range have) {
  // Output o reads [o stride - pad, o stride - pad + reach), of which the borders of the image take their part.
  Range in = out;
  if (have.begin > 0) in.begin = std::max(in.begin, (have.begin + w.pad_begin + w.stride - 1) / w.stride);
  if (have.end < extent) {
    const Index room = have.end + w.pad_begin - w.reach();
    in.end = room < 0 ? 0 : std::min(in.end, room / w.stride + 1);
  }
  return in.size() == 0 ? Range{out.begin, out.begin} : in;
}

std::vector<Box> around(const Box& whole, const Box& core) {
  if (core.empty()) return {whole};
  std::vector<Box> boxes{core};
  Box rest = whole;
  for (int i = 0; i < whole.at.rank(); ++i) {
    const Index begin = rest.at[i], end = begin + rest.size[i], first = core.at[i], last = first + core.size[i];
    for (const auto& [from, to] : {std::pair{begin, first}, {last, end}}) {
      if (from == to) continue;
      Box slab = rest;
      slab.at[i] = from, slab.size[i] = to - from;
      boxes.push_back(slab);
    }
    rest.at[i] = first, rest.size[i] = core.size[i];
  }
  return boxes;
}

Route route(std::span<const Box> have, std::span<const Box> want, int me) {
  Route r;
  for (int peer = 0; peer < static_cast<int>(have.size()); ++peer) {
    if (peer == me) continue;
    if (const Box box = intersect(have[me], want[peer]); !box.empty()) r.sends.push_back({peer, box});
    if (const Box box = intersect(have[peer], want[me]); !box.empty()) r.recvs.push_back({peer, box});
  }
  return r;
}

}  // namespace trireme
