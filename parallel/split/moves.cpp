// Tensors between layouts, recorded.
#include "framework/autograd/tape.h"
#include "framework/tensor/launch.h"
#include "kernels/contracts/elementwise.h"
#include "parallel/split/sharded_ops.h"

namespace trireme {
namespace {

/// Box want[me] of the whole, for a rank of the line whose x is box have[me].
Tensor fetched(const Tensor& x, const Grid& grid, const Grid::Line& line, const std::vector<Box>& have,
               const std::vector<Box>& want) {
  const Box &from = have[line.me], &to = want[line.me];
  const Tensor y = Tensor::empty(to.size, x.dtype(), x.device());
  Exchange exchange(grid, line, route(have, want, line.me), x, from.at);
  copy_box(y, to.at, x, from.at, intersect(from, to));
  for (const auto& [box, values] : exchange.wait()) copy_box(y, to.at, values, box.at, box);
  return y;
}

/// x, in layout `have`, as layout `want`. Where the source is copied each rank finds its part at home; the others'
/// parts lie along the axes that divide the source.
Tensor moved(const Tensor& x, const ShardedOps& have, const ShardedOps& want) {
  AxisMask travel = 0;
  for (int axis = 0; axis < x.rank(); ++axis)
    if (const int over = have.layout()[axis]; over != Layout::none && want.layout()[axis] != over) travel |= 1u << over;
  const Grid::Line line = have.grid().line(travel);
  return fetched(x, have.grid(), line, have.boxes(line), want.boxes(line));
}

}  // namespace

Tensor relayout(const Tensor& x, const ShardedOps& to) {
  const ShardedOps::Ptr have = to.of(x), want = to.shared_from_this();
  if (have->layout() == want->layout()) return x;
  const bool apart = want->layout().axes() != 0;
  const Tensor in = x.with_shard_spec({});
  Tensor y = moved(in, *have, *want);
  if (needs_record("relayout", y, {&in}))
    y = record("relayout", std::move(y), {in}, [have, want](const Tensor& dy, Gradients& g) {
      if (g.needs_grad(0)) g.set_grad(0, moved(dy, *want, *have));
    });
  return apart ? y.with_shard_spec(want) : y;
}

Tensor copy_to_parallel(const Tensor& x, const std::shared_ptr<const Grid>& grid, AxisMask axes) {
  if (axes == 0 || !is_recorded_or_traced({&x})) return x;
  return record("shared", x.detach(), {x}, [grid, axes](const Tensor& dy, Gradients& g) {
    if (!g.needs_grad(0)) return;
    Tensor sum = is_uniquely_owned(dy) ? dy : dy.clone();
    grid->sum(sum, axes);
    g.set_grad(0, std::move(sum));
  });
}

Tensor reduce_from_parallel(const Tensor& x, const Grid& grid, AxisMask axes) {
  if (axes == 0) return x;
  Tensor y = x.detach();
  grid.sum(y, axes);
  if (!needs_record("summed", y, {&x})) return y;
  return record("summed", std::move(y), {x}, [](const Tensor& dy, Gradients& g) { g.set_grad(0, dy); });
}

Tensor halo_exchange(const Tensor& x, const Halo& halo) {
  if (halo.have == halo.want) return x;
  Tensor y = fetched(x, *halo.grid, halo.line, halo.have, halo.want);
  if (!needs_record("widened", y, {&x})) return y;
  return record("widened", std::move(y), {x}, [halo](const Tensor& dy, Gradients& g) {
    write_grad(g, 0, [&](const Tensor& dx) {
      const Box &mine = halo.have[halo.line.me], &wide = halo.want[halo.line.me];
      Exchange exchange(*halo.grid, halo.line, route(halo.want, halo.have, halo.line.me), dy, wide.at);
      launch<kernel::Fill>(dx, 0.0);
      copy_box(dx, mine.at, dy, wide.at, intersect(mine, wide));
      for (const auto& [box, values] : exchange.wait()) copy_box(dx, mine.at, values, box.at, box, true);
    });
  });
}

}  // namespace trireme
