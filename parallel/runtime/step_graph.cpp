#include "parallel/runtime/step_graph.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace trireme {

bool StepGraph::serves(const Plan& plan, const World& world) {
  const Device device = plan.parts.front().device;
  return device.kind == DeviceKind::cuda && world.size() == 1 && plan.programs.size() == 1 && plan.microbatches == 1 &&
         std::all_of(plan.parts.begin(), plan.parts.end(), [&](const PartInfo& p) { return p.device == device; });
}

bool StepGraph::ready(Executor& executor, const Tensor& x, const Tensor& y, const StepContext& pass,
                      double loss_scale) {
  if (!refusal_.empty() || !pass.batch.training || x.device() != device_ || y.device() != device_) return false;
  if (!x.fields().empty() || !y.fields().empty()) return false;  // which are not among what a graph reads
  const Kind kind{x.shape(), y.shape(), x.dtype(), y.dtype(), pass.batch.global_batch, loss_scale};
  if (last_ != kind) {
    drop();
    last_ = kind;
    return false;
  }
  load(x, y, pass);
  return graph_ || capture(executor, pass);
}

void StepGraph::load(const Tensor& x, const Tensor& y, const StepContext& pass) {
  const NoGrad off;
  const Index rows = x.dim(0);
  if (!graph_) {
    x_ = Tensor::like(x), y_ = Tensor::like(y);
    numbers_ = Tensor::empty({1 + rows}, DType::i64, device_);
  }
  x_.copy_from(x), y_.copy_from(y);
  const Tensor numbers = Tensor::empty({1 + rows}, DType::i64);
  auto* n = numbers.data<std::int64_t>();
  *n++ = static_cast<std::int64_t>(pass.batch.step);
  if (pass.batch.samples)
    std::copy_n(pass.batch.samples.to(cpu()).data<std::int64_t>(), rows, n);
  else
    std::iota(n, n + rows, std::int64_t{0});
  numbers_.copy_from(numbers);
}

StepContext StepGraph::captured_context(StepContext pass) const {
  pass.step_at = numbers_.view_rows(0, 1);
  pass.batch.samples = numbers_.view_rows(1, numbers_.dim(0));
  return pass;
}

bool StepGraph::capture(Executor& executor, const StepContext& pass) {
  const StepScope scope(captured_context(pass));
  try {
    graph_ = runtime(device_.kind).make_graph(device_);
    check(graph_ != nullptr, "step", "{} has no graphs", device_);
    graph_->begin();
    loss_ = executor.compute_loss(x_, y_).clone();
    graph_->end();
    graph_->begin();
    executor.compute_gradients();
    graph_->end();
    written_ = parameters_.written_grads();
    return true;
  } catch (const Error& e) {
    drop();
    parameters_.clear_grads();
    refusal_ = e.what();
    return false;
  }
}

void StepGraph::replay(const std::function<void()>& between) {
  graph_->start(0);
  between();
  graph_->start(1);
  parameters_.set_written_grads(written_);
}

void StepGraph::drop() {
  graph_.reset();
  x_ = y_ = numbers_ = loss_ = {};
  last_.reset();
}

}  // namespace trireme
