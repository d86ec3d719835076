#include "kernels/plans/broadcast.h"

namespace trireme {

Walk plan_walk(const View& y, const View& a, const View& b, std::string_view op) {
  auto reaches = [&](const View& v) {
    bool ok = v.shape.rank() <= y.shape.rank() && v.dtype == y.dtype;
    for (int i = 1; ok && i <= v.shape.rank(); ++i) ok = v.shape[-i] == y.shape[-i] || v.shape[-i] == 1;
    return ok;
  };
  check(reaches(a) && reaches(b), op, "cannot broadcast {} {} and {} {} to {} {}", a.dtype, a.shape, b.dtype, b.shape,
        y.dtype, y.shape);
  Walk w;
  Index block_a = 1, block_b = 1;
  for (int i = 1; i <= y.shape.rank(); ++i) {
    Index n = y.shape[-i];
    Index na = i <= a.shape.rank() ? a.shape[-i] : 1, nb = i <= b.shape.rank() ? b.shape[-i] : 1;
    Index sa = na == 1 ? 0 : block_a, sb = nb == 1 ? 0 : block_b;
    block_a *= na, block_b *= nb;
    if (n == 1) continue;
    int k = w.rank - 1;
    if (k >= 0 && sa == w.step_a[k] * w.extent[k] && sb == w.step_b[k] * w.extent[k]) {
      w.extent[k] *= n;
      continue;
    }
    w.extent[w.rank] = n, w.step_a[w.rank] = sa, w.step_b[w.rank] = sb;
    ++w.rank;
  }
  if (w.rank == 0) w.rank = 1, w.extent[0] = 1, w.step_a[0] = w.step_b[0] = 0;
  return w;
}

}  // namespace trireme
