#include "framework/pass.h"

#include <utility>

#include "kernels/random.h"

namespace trireme {
namespace {
thread_local PassScope* innermost = nullptr;
}

const Pass& Pass::current() {
  if (innermost) return innermost->pass_;
  thread_local const Pass none{.batch = {.calls = std::make_shared<RandomCalls>()}};
  return none;
}

PassScope::PassScope(Pass pass) : pass_(std::move(pass)), before_(innermost) {
  if (!pass_.batch.calls) pass_.batch.calls = std::make_shared<RandomCalls>();
  if (before_) before_->after_ = this;
  innermost = this;
}
PassScope::~PassScope() {
  if (before_) before_->after_ = after_;
  (after_ ? after_->before_ : innermost) = before_;
}

const BatchContext& batch_of(const Tensor& x, const Tensor& other) {
  if (x && x.batch()) return *x.batch();
  return other && other.batch() ? *other.batch() : Pass::current().batch;
}
bool is_training(const Tensor& x) { return Pass::current().batch.training && batch_of(x).training; }

BatchPtr slice_batch(const BatchPtr& batch, Index rows, Index begin, Index end) {
  if (!batch || (begin == 0 && end == rows)) return batch;
  if (!batch->samples || batch->samples.numel() != rows) return nullptr;
  Index at = 0;
  for (auto& [count, part] : batch->joined) {
    if (at == begin && at + count == end) return part;
    at += count;
  }
  auto slice = std::make_shared<BatchContext>(*batch);
  slice->samples = batch->samples.view_rows(begin, end);
  slice->sliced = batch->sliced || (batch->global_batch > 0 && batch->global_batch != rows);
  slice->global_batch = 0;
  slice->labels = {}, slice->micros = {}, slice->joined = {};
  return slice;
}

BatchPtr join_batches(const std::vector<Tensor>& parts) {
  auto all = std::make_shared<BatchContext>();
  Index rows = 0;
  for (const Tensor& part : parts) {
    if (!part.batch() || !part.batch()->names_rows_of(part)) return nullptr;
    rows += part.dim(0);
  }
  *all = *parts.at(0).batch();
  all->samples = Tensor::empty({rows}, DType::i64);
  all->global_batch = 0;
  all->labels = {}, all->micros = {}, all->joined = {};
  auto* id = all->samples.data<std::int64_t>();
  bool known = true;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const BatchContext& batch = *parts[i].batch();
    const Tensor host = batch.samples.detach().to(cpu());
    for (const std::int64_t sample : host.view().span<const std::int64_t>())
      *id++ = i == 0 ? sample : static_cast<std::int64_t>(mix(static_cast<std::uint64_t>(sample), i));
    known = known && batch.global_batch > 0;
    all->global_batch += batch.global_batch;
    all->sliced = all->sliced || batch.sliced;
    all->training = all->training && batch.training;
    all->joined.emplace_back(batch.samples.numel(), parts[i].batch());
  }
  if (!known) all->global_batch = 0;
  return all;
}

BatchPtr replay_batch(const BatchPtr& batch) {
  if (!batch) return batch;
  auto again = std::make_shared<BatchContext>(*batch);
  if (batch->calls) again->calls = std::make_shared<RandomCalls>(*batch->calls);
  return again;
}

}  // namespace trireme
