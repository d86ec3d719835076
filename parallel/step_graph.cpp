#include "parallel/step_graph.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace trireme {

StepGraph::Way StepGraph::way(const Tensor& x, const Tensor& y, const Pass& pass, double loss_scale) {
  if (!refusal_.empty() || !pass.training || x.device() != device_ || y.device() != device_) return Way::start;
  const Kind kind{x.shape(), y.shape(), x.dtype(), y.dtype(), pass.global_batch, loss_scale};
  const bool same = last_ == kind;
  if (same) return graph_ ? Way::replay : Way::note;
  drop();
  last_ = kind;
  return Way::start;
}

void StepGraph::load(const Tensor& x, const Tensor& y, const Pass& pass) {
  const NoGrad off;
  const Index rows = x.dim(0);
  if (!graph_) {
    x_ = Tensor::like(x), y_ = Tensor::like(y);
    numbers_ = Tensor::empty({1 + rows}, DType::i64, device_);
  }
  x_.copy_from(x), y_.copy_from(y);
  const Tensor numbers = Tensor::empty({1 + rows}, DType::i64);
  auto* n = numbers.data<std::int64_t>();
  *n++ = static_cast<std::int64_t>(pass.step);
  if (pass.samples)
    std::copy_n(pass.samples.to(cpu()).data<std::int64_t>(), rows, n);
  else
    std::iota(n, n + rows, std::int64_t{0});
  numbers_.copy_from(numbers);
}

Pass StepGraph::noted_pass(Pass pass) const {
  pass.step_at = numbers_.rows(0, 1);
  pass.samples = numbers_.rows(1, numbers_.dim(0));
  return pass;
}

void StepGraph::begin_forward() {
  graph_ = runtime(device_.kind).make_graph(device_);
  check(graph_ != nullptr, "step", "{} has no graphs", device_);
  graph_->begin();
}

void StepGraph::begin_backward(const Tensor& loss) {
  loss_ = loss;
  graph_->end();
  graph_->begin();
}

void StepGraph::end() {
  graph_->end();
  written_ = parameters_.written_grads();
}

void StepGraph::refuse(const std::string& why) {
  drop();
  refusal_ = why;
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
