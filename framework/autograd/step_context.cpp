#include "framework/autograd/step_context.h"

#include <utility>

#include "kernels/core/random.h"

namespace trireme {
namespace {
thread_local StepScope* innermost = nullptr;
}

const StepContext& StepContext::current() {
  if (innermost) return innermost->context_;
  thread_local const StepContext none{.batch = {.calls = std::make_shared<RandomCalls>()}};
  return none;
}

StepScope::StepScope(StepContext context) : context_(std::move(context)), before_(innermost) {
  if (!context_.batch.calls) context_.batch.calls = std::make_shared<RandomCalls>();
  if (before_) before_->after_ = this;
  innermost = this;
}
StepScope::~StepScope() {
  if (before_) before_->after_ = after_;
  (after_ ? after_->before_ : innermost) = before_;
}

RandomCalls::RandomCalls() = default;
RandomCalls::RandomCalls(const RandomCalls& other) : calls_(other.now()) {}
RandomCalls::~RandomCalls() = default;

std::uint64_t RandomCalls::next(std::uint64_t layer) {
  const std::lock_guard lock(mutex_);
  return calls_[layer]++;
}

RandomCalls::Calls RandomCalls::now() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

const BatchContext& batch_of(const Tensor& x, const Tensor& other) {
  if (x && x.batch()) return *x.batch();
  return other && other.batch() ? *other.batch() : StepContext::current().batch;
}
bool is_training(const Tensor& x) { return StepContext::current().batch.training && batch_of(x).training; }

BatchPtr slice_batch(const BatchPtr& batch, Index rows, Index begin, Index end) {
  if (!batch || (begin == 0 && end == rows)) return batch;
  Index at = 0;
  for (auto& [count, part] : batch->joined) {
    if (at == begin && at + count == end) return part;
    at += count;
  }
  auto slice = std::make_shared<BatchContext>(*batch);
  const bool named = batch->samples && batch->samples.numel() == rows;
  slice->samples = named ? batch->samples.view_rows(begin, end) : Tensor{};
  slice->sliced = batch->is_share();
  slice->global_batch = 0;
  slice->microbatches = {};
  slice->joined = {};
  if (batch->calls) slice->calls = std::make_shared<RandomCalls>(*batch->calls);
  return slice;
}

BatchPtr take_batch(const BatchPtr& batch, Index rows, const Tensor& ids) {
  if (!batch) return batch;
  const auto at = ids.to_vector<Index>();
  std::vector<Index> sorted = at;
  std::ranges::sort(sorted);
  const bool each_once =
      static_cast<Index>(sorted.size()) == rows && std::ranges::adjacent_find(sorted) == sorted.end();
  auto taken = std::make_shared<BatchContext>(*batch);
  if (batch->samples && batch->samples.numel() == rows) {
    const auto samples = batch->samples.to_vector<Index>();
    std::vector<Index> named;
    for (const Index i : at) named.push_back(samples[static_cast<std::size_t>(i)]);
    taken->samples = Tensor::from(named);
  }
  taken->joined = {};
  if (each_once) return taken;
  taken->sliced = batch->is_share();
  taken->global_batch = 0;
  taken->microbatches = {};
  return taken;
}

namespace {
/// The context of joined parts of which some belong to no batch.
BatchPtr mixed_batch(const std::vector<Tensor>& parts) {
  std::shared_ptr<BatchContext> mixed;
  for (const Tensor& part : parts) {
    if (!part.batch()) continue;
    const bool share = part.batch()->is_share() || (mixed && mixed->sliced);
    if (!mixed) mixed = std::make_shared<BatchContext>(*part.batch());
    mixed->sliced = share;
  }
  if (!mixed) return nullptr;
  mixed->samples = {};
  mixed->global_batch = 0;
  mixed->microbatches = {};
  mixed->joined = {};
  return mixed;
}
}  // namespace

BatchPtr join_batches(const std::vector<Tensor>& parts) {
  auto all = std::make_shared<BatchContext>();
  Index rows = 0;
  for (const Tensor& part : parts) {
    if (!part.batch() || !part.batch()->names_rows_of(part)) return mixed_batch(parts);
    rows += part.dim(0);
  }
  check(rows > 0 || !parts.empty(), "concat", "there is nothing to join: give at least one tensor");
  *all = *parts[0].batch();
  all->samples = Tensor::empty({rows}, DType::i64);
  all->global_batch = 0;
  all->microbatches = {};
  all->joined = {};
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
    all->joined.emplace_back(batch.samples.numel(), parts[i].impl()->batch);
  }
  if (known) return all;
  all->global_batch = 0;
  for (const Tensor& part : parts) all->sliced = all->sliced || part.batch()->is_share();
  return all;
}

BatchPtr replay_batch(const BatchPtr& batch) {
  if (!batch) return batch;
  auto again = std::make_shared<BatchContext>(*batch);
  if (batch->calls) again->calls = std::make_shared<RandomCalls>(*batch->calls);
  return again;
}

}  // namespace trireme
