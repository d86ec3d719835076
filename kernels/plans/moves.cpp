#include "kernels/plans/moves.h"

#include "kernels/contracts/move.h"

namespace trireme {
namespace {

/// Distance in elements between neighbours along each axis of a dense tensor.
Shape steps_of(const Shape& s) {
  Shape steps = s;
  for (int i = 0; i < s.rank(); ++i) steps[i] = s.product(i + 1, s.rank());
  return steps;
}

}  // namespace

void Axes::add(Index n, Index to, Index from) {
  if (n == 1) return;
  if (int k = rank - 1; k >= 0 && to_step[k] == to * n && from_step[k] == from * n) {
    extent[k] *= n, to_step[k] = to, from_step[k] = from;
    return;
  }
  extent[rank] = n, to_step[rank] = to, from_step[rank] = from;
  ++rank;
}

void Axes::erase(int axis) {
  --rank;
  for (int i = axis; i < rank; ++i)
    extent[i] = extent[i + 1], to_step[i] = to_step[i + 1], from_step[i] = from_step[i + 1];
}

Index Axes::count() const {
  Index n = 1;
  for (int i = 0; i < rank; ++i) n *= extent[i];
  return n;
}

Runs plan_copy_box(const View& to, const Shape& to_at, const View& from, const Shape& from_at, const Shape& extent) {
  constexpr auto op = kernel::CopyBox::name;
  const int rank = extent.rank();
  check(to.dtype == from.dtype, op, "got {} for {}: types must be equal", from.dtype, to.dtype);
  check(to.shape.rank() == rank && from.shape.rank() == rank && to_at.rank() == rank && from_at.rank() == rank, op,
        "got {} at {} to {} at {}, box {}: ranks must be equal", from.shape, from_at, to.shape, to_at, extent);
  for (int i = 0; i < rank; ++i)
    check(extent[i] >= 0 && to_at[i] >= 0 && from_at[i] >= 0 && to_at[i] + extent[i] <= to.shape[i] &&
              from_at[i] + extent[i] <= from.shape[i],
          op, "a box of {} does not fit from {} at {} to {} at {}", extent, from.shape, from_at, to.shape, to_at);
  Runs runs;
  if (extent.numel() == 0) return runs;
  const Shape to_step = steps_of(to.shape), from_step = steps_of(from.shape);
  for (int i = 0; i < rank; ++i) {
    runs.to_first += to_at[i] * to_step[i], runs.from_first += from_at[i] * from_step[i];
    runs.outer.add(extent[i], to_step[i], from_step[i]);
  }
  runs.run = 1;
  if (const int last = runs.outer.rank - 1;
      last >= 0 && runs.outer.to_step[last] == 1 && runs.outer.from_step[last] == 1) {
    runs.run = runs.outer.extent[last];
    runs.outer.erase(last);
  }
  return runs;
}

Axes plan_permute(const View& y, const View& x, const Shape& order) {
  const int rank = x.shape.rank();
  unsigned seen = 0;
  bool ok = order.rank() == rank && y.shape.rank() == rank && y.dtype == x.dtype;
  for (int i = 0; ok && i < rank; ++i) {
    ok = order[i] >= 0 && order[i] < rank && y.shape[i] == x.shape[static_cast<int>(order[i])];
    if (ok) seen |= 1u << order[i];
  }
  check(ok && seen == (1u << rank) - 1, kernel::Permute::name, "cannot reorder {} {} by {} into {} {}", x.dtype,
        x.shape, order, y.dtype, y.shape);
  const Shape y_step = steps_of(y.shape), x_step = steps_of(x.shape);
  Axes axes;
  for (int i = 0; i < rank; ++i) axes.add(y.shape[i], y_step[i], x_step[static_cast<int>(order[i])]);
  return axes;
}

}  // namespace trireme
