// Inverted dropout whose mask is a function of (seed, step, sample id, layer, call of the layer).
#include <numeric>

#include "framework/ops/help.h"
#include "framework/ops/ops.h"
#include "framework/ops/random.h"

namespace trireme {

Tensor ops::sample_ids(const char* op, const Tensor& x) {
  const Index rows = x.dim(0);
  Tensor ids = batch_of(x).samples;
  if (!ids) {
    ids = Tensor::empty({rows}, DType::i64);
    const auto all = ids.view().span<std::int64_t>();
    std::iota(all.begin(), all.end(), 0);
  }
  check(ids.dtype() == DType::i64 && ids.numel() == rows, op,
        "the batch names {} samples ({}), the input has {} rows: the first axis must be the samples'", ids.numel(),
        ids.dtype(), rows);
  return ids.device() == x.device() ? ids : ids.detach().to(x.device());
}

MaskKey ops::mask_key(const Tensor& x, std::uint64_t layer) {
  const BatchContext& batch = batch_of(x);
  const std::uint64_t calls = batch.calls ? batch.calls->next(layer) : 0;
  if (calls > 0) layer = mix(layer, calls);
  const Tensor& step_at = StepContext::current().step_at;
  if (step_at) return {batch.seed, step_at.data<std::int64_t>(), layer};
  return mix(mix(batch.seed, batch.step), layer);
}

Tensor ops::dropout_rows(const Tensor& x, const Tensor& sample, const Tensor& first, double p, const MaskKey& key) {
  Tensor y = Tensor::like(x);
  launch<kernel::Dropout>(y, x, sample, first, p, key);
  if (!needs_record("dropout", y, {&x})) return y;
  return record("dropout", std::move(y), {x},
                [sample = SavedTensor(sample), first = SavedTensor(first), p, key](const Tensor& dy, Gradients& g) {
                  write_grad(g, 0, [&](const Tensor& dx) { launch<kernel::Dropout>(dx, dy, sample, first, p, key); });
                });
}

Tensor dropout(const Tensor& x, double p, std::uint64_t layer) {
  ops::check_float("dropout", x);
  check(p >= 0 && p < 1, "dropout", "probability {} lies outside [0, 1)", p);
  if (p == 0 || !is_training(x)) return x;
  check(x.rank() >= 1, "dropout", "a scalar has no rows to draw masks for");
  if (x.shard_spec()) return x.shard_spec()->dropout(x, p, layer);
  return ops::dropout_rows(x, ops::sample_ids("dropout", x), {}, p, ops::mask_key(x, layer));
}

namespace {
/// What to multiply x by: one number for the cells of x along axes [1, end), divided over ranks as x is; x itself where
/// nothing is dropped.
Tensor mask_for(const char* op, const Tensor& x, int end, double p, std::uint64_t layer) {
  ops::check_float(op, x);
  check(p >= 0 && p < 1, op, "probability {} lies outside [0, 1)", p);
  if (p == 0 || !is_training(x)) return x;
  const NoGrad constant;
  Shape shape = ops::global_shape(x);
  for (int i = 1; i < end; ++i) shape[i] = 1;
  const Tensor ones = x.shard_spec() ? x.shard_spec()->ones(x, shape) : Tensor::full(shape, 1, x.dtype(), x.device());
  if (ones.shard_spec()) return ones.shard_spec()->dropout(ones, p, layer);
  return ops::dropout_rows(ones, ops::sample_ids(op, x), {}, p, ops::mask_key(x, layer));
}
}  // namespace

Tensor channel_dropout(const Tensor& x, double p, std::uint64_t layer) {
  check(x && x.rank() >= 2, "channel_dropout", "input is {}, expected [rows, ..., C]", x ? x.shape() : Shape{});
  const Tensor mask = mask_for("channel_dropout", x, x.rank() - 1, p, layer);
  return mask.id() == x.id() ? x : x * mask;
}
Tensor row_dropout(const Tensor& x, double p, std::uint64_t layer) {
  check(x && x.rank() >= 1, "row_dropout", "a scalar has no rows to draw masks for");
  const Tensor mask = mask_for("row_dropout", x, x.rank(), p, layer);
  return mask.id() == x.id() ? x : x * mask;
}

}  // namespace trireme
