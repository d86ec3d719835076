// Inverted dropout whose mask is a function of (seed, step, sample id, layer, call of the layer).
#include <numeric>

#include "framework/ops/help.h"
#include "framework/ops/ops.h"
#include "framework/ops/place.h"
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
  return record(
      "dropout", std::move(y), {x},
      ops::twice([sample = SavedTensor(sample), first = SavedTensor(first), p, key](const Tensor& dy, Gradients& g) {
        const auto mask = [=](const Tensor& to, const Tensor& from) {
          launch<kernel::Dropout>(to, from, sample, first, p, key);
        };
        if (!g.records()) return write_grad(g, 0, [&](const Tensor& dx) { mask(dx, dy); });
        g.set_grad(0, ops::linear_map("dropout", dy, g.input(0), mask, mask));
      }));
}

namespace {

/// This block's part of the global tensor's mask.
Tensor divided_dropout(const Tensor& x, double p, std::uint64_t layer) {
  const ShardSpec& spec = *x.shard_spec();
  // The last divided dimension. The elements of later dimensions are adjacent in the whole sample.
  int last = x.rank() - 1;
  while (last > 0 && spec.over(last) == 0) --last;
  const auto put = [&](const Tensor& y) { return y.with_shard_spec(spec.shared_from_this()); };
  if (last == 0) return put(ops::dropout_rows(plain(x), ops::sample_ids("dropout", x), {}, p, ops::mask_key(x, layer)));
  // For each row of the mask: its sample, and the number of its first element in the whole sample.
  const Index run = x.shape().product(last + 1, x.rank()), per_sample = x.shape().product(1, last + 1);
  const Index rows = x.dim(0) * per_sample;
  const bool joined = spec.runs(last).size() == 1;  // a whole stretch of `last` is one row of the mask
  const Index stretch = joined ? x.dim(last) : 1;
  const Tensor ids = ops::sample_ids("dropout", x).to(cpu());
  const Tensor sample = Tensor::empty({rows / std::max<Index>(1, stretch)}, DType::i64), first = Tensor::like(sample);
  std::vector<std::vector<Index>> places(static_cast<std::size_t>(last) + 1);  // in the whole, of the block's cells
  for (int dim = 1; dim <= last; ++dim)
    for (const auto& [begin, end] : spec.runs(dim))
      for (Index i = begin; i < end; ++i) places[static_cast<std::size_t>(dim)].push_back(i);
  for (Index row = 0; row < sample.numel(); ++row) {
    const Index cell = row * stretch;
    Index rest = cell % per_sample, at = 0, stride = 1;
    for (int dim = last; dim > 0; --dim) {
      at += places[static_cast<std::size_t>(dim)][static_cast<std::size_t>(rest % x.dim(dim))] * stride;
      rest /= x.dim(dim);
      stride *= spec.global_shape()[dim];
    }
    sample.data<std::int64_t>()[row] = ids.data<std::int64_t>()[cell / per_sample];
    first.data<std::int64_t>()[row] = at * spec.global_shape().product(last + 1, x.rank());
  }
  const Tensor y = ops::dropout_rows(plain(x).reshape({sample.numel(), stretch * run}), sample.to(x.device()),
                                     first.to(x.device()), p, ops::mask_key(x, layer));
  return put(y.reshape(x.shape()));
}

}  // namespace

Tensor dropout(const Tensor& x, double p, std::uint64_t layer) {
  ops::check_float("dropout", x);
  check(p >= 0 && p < 1, "dropout", "probability {} lies outside [0, 1)", p);
  if (p == 0 || !is_training(x)) return x;
  check(x.rank() >= 1, "dropout", "a scalar has no rows to draw masks for");
  if (x.shard_spec()) return divided_dropout(x, p, layer);
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
  Tensor ones;
  if (const ShardSpec* spec = x.shard_spec()) {
    Placements placements = spec->placements();
    for (int i = 1; i < end; ++i) placements = placements.without(spec->over(i));
    const int shared = std::max(0, spec->shared_dim());
    const ShardSpec::Ptr to = spec->with(shape, placements, spec->shares(shared), shared);
    ones = Tensor::full(to->block(), 1, x.dtype(), x.device());
    ones.impl()->batch = x.impl()->batch;
    if (to->divides()) return divided_dropout(ones.with_shard_spec(to), p, layer);
  } else {
    ones = Tensor::full(shape, 1, x.dtype(), x.device());
  }
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
