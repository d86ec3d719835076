#include "kernels/plans/strided_loop.h"

#include "kernels/contracts/move.h"

namespace trireme::detail {

StridedLoop<2> plan_broadcast(const View& y, const View& a, const View& b, std::string_view op) {
  const auto reaches = [&](const View& v) {
    bool ok = v.shape.rank() <= y.shape.rank() && v.dtype == y.dtype;
    for (int i = 1; ok && i <= v.shape.rank(); ++i) ok = v.shape[-i] == y.shape[-i] || v.shape[-i] == 1;
    return ok;
  };
  check(reaches(a) && reaches(b), op, "cannot broadcast {} {} and {} {} to {} {}", a.dtype, a.shape, b.dtype, b.shape,
        y.dtype, y.shape);
  StridedLoop<2> loop;
  Index block_a = 1, block_b = 1;
  for (int i = 1; i <= y.shape.rank(); ++i) {
    const Index na = i <= a.shape.rank() ? a.shape[-i] : 1, nb = i <= b.shape.rank() ? b.shape[-i] : 1;
    loop.add(y.shape[-i], {na == 1 ? 0 : block_a, nb == 1 ? 0 : block_b});
    block_a *= na;
    block_b *= nb;
  }
  if (loop.rank == 0) {
    loop.rank = 1;
    loop.extent[0] = 1;
    loop.step[0] = {0, 0};
  }
  return loop;
}

BoxCopy plan_copy_box(const View& to, const Shape& to_at, const View& from, const Shape& from_at, const Shape& extent) {
  constexpr auto op = kernel::CopyBox::name;
  const int rank = extent.rank();
  check(to.dtype == from.dtype, op, "got {} for {}, expected the same type", from.dtype, to.dtype);
  check(to.shape.rank() == rank && from.shape.rank() == rank && to_at.rank() == rank && from_at.rank() == rank, op,
        "got {} at {} to {} at {}, box {}, expected equal ranks", from.shape, from_at, to.shape, to_at, extent);
  for (int i = 0; i < rank; ++i)
    check(extent[i] >= 0 && to_at[i] >= 0 && from_at[i] >= 0 && to_at[i] + extent[i] <= to.shape[i] &&
              from_at[i] + extent[i] <= from.shape[i],
          op, "a box of {} does not fit from {} at {} to {} at {}", extent, from.shape, from_at, to.shape, to_at);
  BoxCopy copy;
  if (extent.numel() == 0) return copy;
  for (int i = rank; i-- > 0;) {
    const Index to_step = to.shape.product(i + 1, rank), from_step = from.shape.product(i + 1, rank);
    copy.to_first += to_at[i] * to_step;
    copy.from_first += from_at[i] * from_step;
    copy.outer.add(extent[i], {to_step, from_step});
  }
  copy.run = 1;
  if (auto& o = copy.outer; o.rank > 0 && o.step[0][0] == 1 && o.step[0][1] == 1) {
    copy.run = o.extent[0];
    o.erase(0);
  }
  return copy;
}

StridedLoop<2> plan_expand(const View& y, const View& x) {
  bool fits = x.shape.rank() <= y.shape.rank() && x.dtype == y.dtype;
  for (int i = 1; fits && i <= x.shape.rank(); ++i) fits = x.shape[-i] == y.shape[-i] || x.shape[-i] == 1;
  check(fits, kernel::Expand::name, "{} {} does not broadcast to {} {}", x.dtype, x.shape, y.dtype, y.shape);
  StridedLoop<2> loop;
  Index y_step = 1, x_step = 1;
  for (int i = 1; i <= y.shape.rank(); ++i) {
    const Index n = i <= x.shape.rank() ? x.shape[-i] : 1;
    loop.add(y.shape[-i], {y_step, n == 1 ? 0 : x_step});
    y_step *= y.shape[-i];
    x_step *= n;
  }
  return loop;
}

StridedLoop<2> plan_permute(const View& y, const View& x, const Shape& order) {
  const int rank = x.shape.rank();
  unsigned seen = 0;
  bool ok = order.rank() == rank && y.shape.rank() == rank && y.dtype == x.dtype;
  for (int i = 0; ok && i < rank; ++i) {
    ok = order[i] >= 0 && order[i] < rank && y.shape[i] == x.shape[static_cast<int>(order[i])];
    if (ok) seen |= 1u << order[i];
  }
  check(ok && seen == (1u << rank) - 1, kernel::Permute::name, "cannot reorder {} {} by {} into {} {}", x.dtype,
        x.shape, order, y.dtype, y.shape);
  StridedLoop<2> loop;
  for (int i = rank; i-- > 0;)
    loop.add(y.shape[i], {y.shape.product(i + 1, rank), x.shape.product(static_cast<int>(order[i]) + 1, rank)});
  return loop;
}

void check_take(const View& few, const View& all, const View& ids, std::string_view op) {
  const bool fits = few.shape.rank() == 3 && all.shape.rank() == 3 &&
                    (few.dtype == all.dtype || (is_half(few.dtype) && all.dtype == DType::f32)) &&
                    few.shape[0] == all.shape[0] && few.shape[2] == all.shape[2] && ids.dtype == DType::i64 &&
                    ids.numel() == few.shape[1];
  check(fits, op, "cannot take {} {} from {} {} by {} {}", few.dtype, few.shape, all.dtype, all.shape, ids.dtype,
        ids.shape);
}

}  // namespace trireme::detail
