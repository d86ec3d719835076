#include "datasets/volumes/dense_voxels.h"

#include <algorithm>
#include <array>
#include <memory>

namespace trireme {
namespace {

constexpr Index most_bytes = Index{1} << 20;  // most bytes per read
constexpr Index longest_gap = 16384;          // rows with gaps of at most this many bytes are read at once

/// Reverses the bytes of each of n numbers.
void swap_bytes(std::byte* numbers, Index n, Index size) {
  for (std::byte* end = numbers + n * size; size > 1 && numbers != end; numbers += size)
    std::reverse(numbers, numbers + size);
}

struct AxisRange {
  Index extent, at, size, step;  // extent of the layout; start and extent of the box; stride in the target
};

/// The axes, slowest first. Axes are joined if their voxels are contiguous both in the layout and in the target.
std::vector<AxisRange> joined_axes(const DenseLayout& layout, const BlockPart& part) {
  std::vector<AxisRange> axes;
  for (const Index axis : layout.order) {
    const int i = static_cast<int>(axis);
    const AxisRange inner{layout.shape[i], part.inside.at[i], part.inside.size[i], part.steps[i]};
    if (inner.extent == 1) continue;
    AxisRange* outer = axes.empty() ? nullptr : &axes.back();
    if (outer && inner.size == inner.extent && outer->step == inner.step * inner.extent)
      *outer = {outer->extent * inner.extent, outer->at * inner.extent, outer->size * inner.extent, inner.step};
    else
      axes.push_back(inner);
  }
  if (axes.empty()) axes.push_back({1, 0, 1, 1});
  return axes;
}

}  // namespace

bool is_inside(const Box& box, const Shape& shape) {
  bool inside = box.at.rank() == 4 && box.size.rank() == 4;
  for (int i = 0; inside && i < 4; ++i)
    inside = box.at[i] >= 0 && box.size[i] >= 0 && box.size[i] <= shape[i] && box.at[i] <= shape[i] - box.size[i];
  return inside;
}

Shape axis_order(int axes, bool columns_first) {
  // In a picture the axes of depth and channels have extent 1, so their position does not matter.
  Shape order{0, 1, 2, 3};
  if (columns_first) order = axes == 2 ? Shape{0, 2, 1, 3} : axes == 3 ? Shape{2, 1, 0, 3} : Shape{3, 2, 1, 0};
  return order;
}

BlockPart part_of_block(const Shape& origin, const Shape& block, const Box& box) {
  const Box here = intersect(box, {origin, block});
  BlockPart part{{from(here.at, origin), here.size}, 0, box.size};
  Index step = 1;
  for (int i = 4; i-- > 0; step *= box.size[i]) {
    part.steps[i] = step;
    part.at += (here.at[i] - box.at[i]) * step;
  }
  return part;
}

void visit_runs(const DenseLayout& layout, const BlockPart& part, const std::function<void(const VoxelRuns&)>& visit) {
  if (part.inside.empty()) return;
  std::vector<AxisRange> axes = joined_axes(layout, part);
  const AxisRange run = axes.back();
  axes.pop_back();
  AxisRange rows{1, 0, 1, 0};
  if (!axes.empty()) {
    rows = axes.back();
    axes.pop_back();
  }
  Index outer = 1;
  for (const AxisRange& a : axes) outer *= a.size;
  for (Index k = 0; k < outer; ++k) {
    VoxelRuns found{.runs = rows.size, .pitch = run.extent, .n = run.size, .run_step = rows.step, .step = run.step};
    Index rest = k, stride = rows.extent * run.extent, to = part.at;
    Index from = rows.at * run.extent + run.at;
    for (std::size_t i = axes.size(); i-- > 0; stride *= axes[i].extent) {
      const Index place = rest % axes[i].size;
      rest /= axes[i].size;
      from += (axes[i].at + place) * stride;
      to += place * axes[i].step;
    }
    found.from = from;
    found.at = to;
    visit(found);
  }
}

void read_dense(const FileReader& file, const DenseLayout& layout, const BlockPart& part, const VoxelSink& sink) {
  const Index size = layout.type->size;
  std::vector<std::byte> buffer;
  const auto read = [&](Index from, Index count) {
    if (buffer.size() < static_cast<std::size_t>(count * size)) buffer.resize(static_cast<std::size_t>(count * size));
    file.read(layout.begin + static_cast<std::size_t>(from * size),
              std::span(buffer).first(static_cast<std::size_t>(count * size)));
    if (layout.swapped) swap_bytes(buffer.data(), count, size);
  };
  visit_runs(layout, part, [&](const VoxelRuns& r) {
    const bool together = (r.pitch - r.n) * size <= longest_gap && r.pitch * size <= most_bytes / 2;
    const Index rows = together ? std::max<Index>(1, most_bytes / (r.pitch * size)) : 1;  // rows per read
    for (Index row = 0; row < r.runs; row += rows) {
      const Index here = std::min(rows, r.runs - row), most = most_bytes / size;
      if (together) {
        read(r.from + row * r.pitch, (here - 1) * r.pitch + r.n);
        for (Index i = 0; i < here; ++i)
          sink(buffer.data() + i * r.pitch * size, r.n, r.at + (row + i) * r.run_step, r.step);
        continue;
      }
      for (Index begin = 0; begin < r.n; begin += most) {
        const Index n = std::min(most, r.n - begin);
        read(r.from + row * r.pitch + begin, n);
        sink(buffer.data(), n, r.at + row * r.run_step + begin * r.step, r.step);
      }
    }
  });
}

void read_dense(std::span<std::byte> bytes, const DenseLayout& layout, const BlockPart& part, const VoxelSink& sink) {
  const Index size = layout.type->size;
  if (layout.swapped) swap_bytes(bytes.data(), layout.shape.numel(), size);
  visit_runs(layout, part, [&](const VoxelRuns& r) {
    for (Index i = 0; i < r.runs; ++i)
      sink(bytes.data() + (r.from + i * r.pitch) * size, r.n, r.at + i * r.run_step, r.step);
  });
}

DenseVolume::DenseVolume(const FileReader& file, const Shape& array, const DenseLayout& layout, bool more)
    : VolumeSource(file.path(), array, *layout.type), file_(file), layout_(layout) {
  layout_.shape = shape();
  const auto bytes = static_cast<std::size_t>(layout_.bytes());
  const std::size_t held = file.size() - std::min(file.size(), layout_.begin);
  check(file.size() >= layout_.begin && (held == bytes || (more && held > bytes)), ErrorKind::data, "volume",
        "{}: {} of {} are {} bytes, the file holds {}", file.path(), type().name, array, bytes, held);
}

void DenseVolume::read(const Box& box, const VoxelSink& sink) const {
  const FileReader file(file_.path);
  file_.check_same(file);
  read_dense(file, layout_, part_of_block({0, 0, 0, 0}, shape(), box), sink);
}

}  // namespace trireme
