#include "parallel/runtime/step_graph.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "parallel/comm/transport/call_capture.h"
#include "parallel/plan/action_kind.h"

namespace trireme {

bool StepGraph::serves(const Plan& plan) {
  const Device device = plan.parts.front().device;
  if (device.kind != DeviceKind::cuda || plan.programs.size() != 1 || plan.microbatches != 1) return false;
  if (plan.tickets > 0 || is_asynchronous(plan) || plan.programs.front().serves()) return false;
  if (std::ranges::any_of(plan.parts, [&](const PartInfo& p) { return p.device != device; })) return false;
  const auto& actions = plan.programs.front().actions;
  const auto last_pass = std::find_if(actions.rbegin(), actions.rend(), is_pass).base();
  return std::ranges::all_of(actions, [&](const Action& a) {
    using K = ActionKind;
    const auto is = [&](auto... kinds) { return ((a.kind == kinds) || ...); };
    if (a.codec) return false;
    if (is_pass(a) || is_reduction(a) || is_replica_sum(a) || averages_statistics(a) || is(K::free, K::update))
      return true;
    if (is(K::agree)) return a.payload != OperandKind::count || a.peer.axis.empty();
    return is(K::all_gather, K::broadcast) && &a >= std::to_address(last_pass);
  });
}

bool StepGraph::ready(Executor& executor, const Tensor& x, const Tensor& y, const StepContext& context,
                      double loss_scale) {
  if (!refusal_.empty() || !context.batch.training || x.device() != device_ || y.device() != device_) return false;
  if (!x.fields().empty() || !y.fields().empty()) return false;  // a graph reads no fields
  const Kind kind{x.shape(), y.shape(), x.dtype(), y.dtype(), context.batch.global_batch, loss_scale};
  if (last_ != kind) {
    drop();
    last_ = kind;
    return false;
  }
  load(x, y, context);
  return graph_ || capture(executor, context);
}

void StepGraph::load(const Tensor& x, const Tensor& y, const StepContext& context) {
  const NoGrad off;
  const Index rows = x.dim(0);
  if (!graph_) {
    x_ = Tensor::like(x);
    y_ = Tensor::like(y);
    numbers_ = Tensor::empty({1 + rows}, DType::i64, device_);
  }
  x_.copy_from(x);
  y_.copy_from(y);
  const Tensor numbers = Tensor::empty({1 + rows}, DType::i64);
  auto* n = numbers.data<std::int64_t>();
  *n++ = static_cast<std::int64_t>(context.batch.step);
  if (context.batch.samples)
    std::copy_n(context.batch.samples.to(cpu()).data<std::int64_t>(), rows, n);
  else
    std::iota(n, n + rows, std::int64_t{0});
  numbers_.copy_from(numbers);
}

StepContext StepGraph::captured_context(StepContext context) const {
  context.step_at = numbers_.view_rows(0, 1);
  context.batch.samples = numbers_.view_rows(1, numbers_.dim(0));
  return context;
}

/// Ends a part of the graph and begins the next one.
void StepGraph::cut(std::function<void(const Buckets::Complete&)> between) {
  graph_->end();
  between_.push_back(std::move(between));
  graph_->begin();
}

bool StepGraph::capture(Executor& executor, const StepContext& context) {
  const StepScope scope(captured_context(context));
  try {
    graph_ = runtime(device_.kind).make_graph(device_);
    check(graph_ != nullptr, "step", "{} has no graphs", device_);
    between_.clear();
    const CallCapture calls([this](CallCapture::Replayed call) { cut([call](const Buckets::Complete&) { call(); }); });
    graph_->begin();
    loss_ = executor.compute_loss(x_, y_).clone();
    graph_->end();
    forward_parts_ = between_.size() + 1;
    between_.emplace_back();  // here the loss is read
    graph_->begin();
    executor.compute_gradients(
        [this](std::size_t buckets) { cut([buckets](const Buckets::Complete& complete) { complete(buckets); }); });
    graph_->end();
    between_.emplace_back();
    written_ = parameters_.written_grads();
    return true;
  } catch (const Error& e) {
    drop();
    parameters_.clear_grads();
    refusal_ = e.what();
    return false;
  }
}

void StepGraph::forward() {
  for (std::size_t part = 0; part < forward_parts_; ++part) {
    graph_->start(part);
    if (between_[part]) between_[part]({});
  }
}

void StepGraph::backward(const Buckets::Complete& complete) {
  parameters_.set_written_grads(written_);
  for (std::size_t part = forward_parts_; part < between_.size(); ++part) {
    graph_->start(part);
    if (between_[part]) between_[part](complete);
  }
}

void StepGraph::drop() {
  graph_.reset();
  between_.clear();  // these hold tensors in the graph's memory
  x_ = y_ = numbers_ = loss_ = {};
  last_.reset();
}

}  // namespace trireme
