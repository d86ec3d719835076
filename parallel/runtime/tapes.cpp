#include "parallel/runtime/tapes.h"

#include <optional>

#include "framework/ops/loss_share.h"
#include "framework/tensor/fields.h"
#include "parallel/plan/action_kind.h"

namespace trireme {

Tapes::Tapes(const Plan& plan, const Program& program, const Chain& chain, Loss loss)
    : program_(program),
      chain_(chain),
      loss_(std::move(loss)),
      micros_(plan.microbatches),
      live_(program),
      batches_(static_cast<std::size_t>(1 + most_steps_back(program))) {
  for (StepBatch& b : batches_) {
    b.states.resize(live_.segments.size() * static_cast<std::size_t>(micros_));
    b.boundaries.resize(static_cast<std::size_t>(chain.size() * micros_));
  }
  for (int p = 0; p < chain.size(); ++p) stashed_.push_back(chain.stashed_behind(p));
  check(stashed_.back().empty(), "executor", "'{}' is stashed, but nothing adds it: add a layer AddStashed(\"{}\")",
        stashed_.back().empty() ? "" : stashed_.back()[0], stashed_.back().empty() ? "" : stashed_.back()[0]);
}

void Tapes::clear() {
  for (StepBatch& b : batches_) {
    for (MicrobatchState& f : b.states) f = {};
    for (BoundaryTensors& c : b.boundaries) c = {};
  }
  alive_ = 0;
}

std::vector<Index> Tapes::ends_of(const std::vector<Index>& cut, Index rows) const {
  check(cut.empty() || std::ssize(cut) == micros_, "step",
        "the loader cuts the batch into {} micro-batches, the plan has {}: give it .shard = step.shard()", cut.size(),
        micros_);
  std::vector<Index> ends;
  Index end = 0;
  for (int k = 0; k < micros_; ++k) {
    const auto [from, to] = share(rows, k, micros_);
    end += cut.empty() ? to - from : cut[static_cast<std::size_t>(k)];
    check(end <= rows, "step", "the loader's micro-batches hold more rows than x, which has {}: pass the loader's x",
          rows);
    ends.push_back(end);
  }
  check(end == rows, "step", "the loader's micro-batches hold {} rows, but x has {}: pass the loader's x", end, rows);
  return ends;
}

void Tapes::begin(const Tensor& x, const Tensor& y) {
  const bool whole = micros_ == 1 && batches_.size() == 1;
  // A refused batch does not change micro-batches in flight.
  const std::vector<Index> ends =
      whole ? std::vector<Index>{} : ends_of(StepContext::current().batch.microbatches, x.dim(0));
  advance();
  if (batches_.size() == 1) clear();
  most_alive_ = alive_;
  batch_norm_stats_.clear();
  StepBatch& b = batches_[now_];
  for (BoundaryTensors& c : b.boundaries) c = {};
  b.contexts.clear();
  b.rows.clear();
  b.x.clear();
  b.y.clear();
  const StepContext& now = StepContext::current();
  const BatchContext& batch = now.batch;
  const auto give = [&](const Tensor& x_rows, const Tensor& y_rows, BatchContext context) {
    if (!context.calls) context.calls = std::make_shared<RandomCalls>();
    b.rows.push_back(std::make_shared<const BatchContext>(std::move(context)));
    b.x.push_back(in_batch(x_rows, b.rows.back()));
    b.y.push_back(in_batch(y_rows.detach(), b.rows.back()));
  };
  if (whole) return give(x, y, batch);
  const Index rows = x.dim(0);
  Tensor samples = batch.samples;
  if (!samples) {
    samples = Tensor::empty({rows}, DType::i64);
    for (Index i = 0; i < rows; ++i) samples.data<std::int64_t>()[i] = i;
  }
  Index begin = 0;
  for (const Index end : ends) {
    BatchContext microbatch = batch;
    microbatch.samples = samples.view_rows(begin, end);
    microbatch.microbatches.clear();
    microbatch.calls = {};
    give(x.view_rows(begin, end), y.view_rows(begin, end), std::move(microbatch));
    b.contexts.push_back(now);
    b.contexts.back().batch = *b.rows.back();
    if (micros_ > 1) b.contexts.back().norm_stats = &batch_norm_stats_;
    begin = end;
  }
}

const std::vector<Tensor>& Tapes::outputs(int part, const MicroBatch& microbatch) const {
  return batch(microbatch).states[index(live_.segment_of(part), microbatch)].out;
}

void Tapes::forward(const Action& a) {
  const Segment& s = live_.segment_with(a.part);
  MicrobatchState& f = state(a.part, a.microbatch);
  std::optional<StepScope> scope;
  if (const StepContext* own = context(a.microbatch)) scope.emplace(*own);
  f.alive = true;
  most_alive_ = std::max(most_alive_, ++alive_);
  check(program_.in_flight == 0 || alive_ <= program_.in_flight, ErrorKind::internal, "executor",
        "program {}: {} micro-batches are in flight, the plan allows {}", program_.name, alive_, program_.in_flight);
  Tensor activation;
  Stashed stashed;
  if (s.first == 0) {
    activation = input(a.microbatch);
  } else {
    auto arrived = std::exchange(boundary(s.first - 1, a.microbatch).forward, {});
    auto& names = stashed_[static_cast<std::size_t>(s.first - 1)];
    for (std::size_t i = 0; i < arrived.size(); ++i) {
      f.in.push_back(arrived[i].detach());
      if (BatchPtr& rows = f.in.back().impl()->batch; !rows) rows = batch(a.microbatch).rows[index(0, a.microbatch)];
      f.in.back().require_grad(arrived[i].requires_grad());
      if (i > 0 && i <= names.size()) stashed.emplace(names[i - 1], chain_.entering(f.in.back()));
    }
    activation = chain_.entering(f.in.at(0));
    // After stashed tensors come the fields with gradients.
    std::size_t next = 1 + names.size();
    for (const auto& [name, t] : arrived.at(0).fields())
      if (t.requires_grad()) activation = activation.with(name, f.in.at(next++));
  }
  const LmHead* head = s.end == chain_.size() ? fused_head() : nullptr;
  // Every stage has the rows of the input, with their fields.
  Fields& fields = input(a.microbatch).impl()->fields;
  stashed.fields = fields;
  for (int p = s.first; p < s.end - (head ? 1 : 0); ++p) activation = chain_.run(p, std::move(activation), stashed);
  if (head) activation = head_loss(*head, activation, a.microbatch);
  if (s.end < chain_.size() && !runs(s.end)) check_fields(activation, fields, s.end - 1);
  fields = as_divided(stashed.fields, activation);
  f.out = {std::move(activation)};
  for (auto& name : stashed_[static_cast<std::size_t>(s.end - 1)]) f.out.push_back(stashed.at(name));
  if (s.end == chain_.size() || !runs(s.end)) return;
  for (const auto& [name, t] : f.out[0].fields())
    if (t.requires_grad()) f.out.push_back(t);
  boundary(s.end - 1, a.microbatch).forward = f.out;
}

/// Checks that fields of a result came with the batch: other stages do not get fields that a layer adds.
void Tapes::check_fields(const Tensor& output, const Fields& fields, int part) {
  for (const auto& [name, t] : output.fields()) {
    const bool came_in = fields && fields->contains(name) && fields->at(name).id() == t.id();
    check(came_in, "pipeline",
          "part {} adds a field '{}' to its result, which does not cross the cut after it: cut elsewhere, or make "
          "it a Stash",
          part, name);
  }
}

double Tapes::count_ignored() const {
  double all = 0;
  for (const Tensor& y : batches_[now_].y) all += loss_.ignored()(y);
  return all;
}

Tensor Tapes::head_loss(const LmHead& head, const Tensor& x, const MicroBatch& microbatch) const {
  LabelLossOptions sum = *loss_.cross_entropy();
  sum.reduction = Reduction::sum;
  return head.loss(x, batch(microbatch).y[index(0, microbatch)].to(x.device()), sum);
}

Tensor Tapes::loss_of(const Tensor& output, const MicroBatch& microbatch) const {
  const Tensor& labels = batch(microbatch).y[index(0, microbatch)];
  if (fused_head()) return scale(output, ops::share_of_row("cross_entropy", labels, labels, *loss_.cross_entropy()));
  return loss_(output, labels.to(output.device()));
}

Tensor Tapes::loss(const MicroBatch& microbatch, double scale, std::optional<double> ignored) {
  const StepContext* own = context(microbatch);
  StepContext now = own ? *own : StepContext::current();
  now.ignored = ignored;
  now.in_loss = true;
  const StepScope scope(std::move(now));
  const int last = chain_.size() - 1;
  MicrobatchState& f = state(last, microbatch);
  const NamedRange range("loss");
  Tensor loss = loss_of(f.out.at(0), microbatch);
  check(loss.defined() && loss.numel() == 1 && is_float(loss.dtype()), "loss",
        "has shape {}, expected one number of a floating type: use a loss with Reduction::mean or sum",
        loss ? loss.shape() : Shape{});
  check(loss.requires_grad() || !f.out[0].requires_grad(), "loss",
        "no recorded op leads from the prediction to the loss, so nothing would be trained: compute the loss without "
        "detach(), comparisons and rounding of the prediction");
  f.out = {loss};
  boundary(last, microbatch).gradient = {Tensor::full(loss.shape(), scale, loss.dtype(), loss.device())};
  return loss;
}

void Tapes::backward(const Action& a) {
  const Segment& s = live_.segment_with(a.part);
  MicrobatchState& f = state(a.part, a.microbatch);
  check(
      f.alive, "executor",
      "{} on program {}: its micro-batch has not run forward, or was freed; move the action between the two",
      [&] { return to_string(a); }, program_.name);
  std::optional<StepScope> scope;
  if (const StepContext* own = context(a.microbatch)) scope.emplace(*own);
  if (a.kind == ActionKind::backward_weight)
    f.weights.run();
  else
    walk(f, s, a.microbatch, a.kind == ActionKind::backward_input ? &f.weights : nullptr);
  if (a.kind != ActionKind::backward_input && !live_.frees) release(f);
}

/// One backward over the micro-batch's tape. Gradients of its leaves go to the cut before the segment.
void Tapes::walk(MicrobatchState& f, const Segment& s, const MicroBatch& microbatch, Deferred* weights) {
  auto seeds = std::exchange(boundary(s.end - 1, microbatch).gradient, {});
  auto roots = std::exchange(f.out, {});
  check(seeds.size() == roots.size(), "executor", "got {} gradients for {} outputs of part {}", seeds.size(),
        roots.size(), s.end - 1);
  bool any = false;
  for (auto& root : roots) any = any || root.requires_grad();
  if (any) trireme::backward(roots, seeds, {.defer_weights = weights});
  if (s.first == 0) return;
  auto& gradient = boundary(s.first - 1, microbatch).gradient;
  for (auto& leaf : std::exchange(f.in, {})) {
    const bool any = leaf.requires_grad() && has_grad(leaf);
    gradient.push_back(any ? leaf.grad() : Tensor::zeros(leaf.shape(), leaf.dtype(), leaf.device()));
    if (any) detail::release_grad(leaf);  // a deferred weight half keeps the leaf
  }
}

void Tapes::free(const Action& a) {
  MicrobatchState& f = state(a.part, a.microbatch);
  check(
      f.alive, "executor", "{} on program {}: its activations have been freed already, or were never computed",
      [&] { return to_string(a); }, program_.name);
  release(f);
}

void Tapes::release(MicrobatchState& f) {
  f = {};
  --alive_;
}

}  // namespace trireme
