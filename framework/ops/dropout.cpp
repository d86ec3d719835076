// Inverted dropout whose mask is a function of (seed, step, sample id, layer).
#include <numeric>

#include "framework/ops.h"
#include "framework/ops/help.h"
#include "framework/ops/random.h"

namespace trireme {

Tensor ops::sample_ids(const char* op, Index rows, Device device) {
  Tensor ids = Pass::current().samples;
  if (!ids) {
    ids = Tensor::empty({rows}, DType::i64);
    const auto all = ids.view().span<std::int64_t>();
    std::iota(all.begin(), all.end(), 0);
  }
  check(ids.dtype() == DType::i64 && ids.numel() == rows, op, "the Pass names {} samples ({}), the input has {} rows",
        ids.numel(), ids.dtype(), rows);
  return ids.device() == device ? ids : ids.detach().to(device);
}

Tensor ops::dropout_rows(const Tensor& x, const Tensor& sample, const Tensor& first, double p, std::uint64_t layer) {
  const MaskKey key = pass_key(layer);
  Tensor y = Tensor::like(x);
  launch<kernel::Dropout>(y, x, sample, first, p, key);
  if (!recording({&x})) return y;
  return record("dropout", std::move(y), {x}, [sample, first, p, key](const Tensor& dy, Gradients& g) {
    give(g, 0, [&](const Tensor& dx) { launch<kernel::Dropout>(dx, dy, sample, first, p, key); });
  });
}

Tensor dropout(const Tensor& x, double p, std::uint64_t layer) {
  ops::check_float("dropout", x);
  check(p >= 0 && p < 1, "dropout", "probability {} lies outside [0, 1)", p);
  if (p == 0 || !Pass::current().training) return x;
  check(x.rank() >= 1, "dropout", "a scalar has no rows to draw masks for");
  if (x.spread()) return x.spread()->dropout(x, p, layer);
  return ops::dropout_rows(x, ops::sample_ids("dropout", x.dim(0), x.device()), {}, p, layer);
}

}  // namespace trireme
