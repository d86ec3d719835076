#include "framework/autograd/tape.h"

#include <algorithm>

#include "framework/autograd/trace.h"
#include "framework/tensor/division_error.h"
#include "framework/tensor/launch.h"
#include "framework/tensor/shard_spec.h"
#include "kernels/contracts/elementwise.h"
#include "kernels/core/named_range.h"

namespace trireme {
namespace {

/// How this thread treats an op. A trace records all ops, even under NoGrad.
struct Mode {
  bool grad_off = false;
  Trace* trace = nullptr;
};
thread_local Mode mode;
thread_local std::uint64_t last_sequence = 0;

}  // namespace

bool is_uniquely_owned(const Tensor& t) { return t && t.impl().use_count() == 1 && t.impl()->block.use_count() == 1; }

void add_into(const Tensor& y, const Tensor& x) { launch<kernel::Axpby>(y, x, 1.0, 1.0); }

void refuse_part(const char* op, const Shape& part, const ShardSpec& spec) {
  if (!spec.divides())
    fail_division(
        op,
        "an operand is a weight {} whose gradient several ranks share, and this op counts it on every rank: use the "
        "weight in elementwise ops and layers, or use a strategy that divides no layers (data_parallel)",
        part);
  fail_division(
      op,
      "an operand is {} of {}, whose rest is on other ranks, and this op runs on whole tensors only: leave the layer "
      "that calls it whole, tensor(whole=NAME), or use a strategy that divides no layers (data_parallel)",
      part, spec.global_shape());
}

namespace {
void take_over(const char* op, const Tensor& y, const Tensor::Impl& from) {
  if (from.batch && !y.impl()->batch) y.impl()->batch = from.batch;
  if (!from.shard_spec || y.impl()->shard_spec) [[likely]]
    return;
  // Reading a weight that all ranks have whole is safe: only its gradient is summed.
  if (from.shard_spec->divides() || mode.trace != nullptr || (from.node && !mode.grad_off))
    refuse_part(op, from.shape, *from.shard_spec);
}
}  // namespace

Tensor record(const char* op, Tensor y, std::vector<Tensor> inputs, detail::OpOptions options, Backward backward) {
  for (const Tensor& input : inputs)
    if (input) take_over(op, y, *input.impl());
  if (mode.trace != nullptr) {
    mode.trace->ops.push_back({op, std::move(inputs), y, options.copy()});
    return y;
  }
  if (mode.grad_off || !is_float(y.dtype())) return y;
  const auto wanted = [](const Tensor& t) { return t && t.impl()->node; };
  if (std::none_of(inputs.begin(), inputs.end(), wanted)) return y;
  auto node = std::make_shared<detail::Node>(std::move(backward));
  node->op = op;
  node->inputs.reserve(inputs.size());
  for (const Tensor& input : inputs) {
    node->inputs.push_back(input ? input.impl()->node : nullptr);
    if (node->inputs.back()) last_sequence = std::max(last_sequence, node->inputs.back()->sequence);
  }
  node->sequence = ++last_sequence;
  node->place = NamedRange::current();
  node->shape = y.shape();
  node->dtype = y.dtype();
  node->device = y.device();
  y.impl()->node = std::move(node);
  return y;
}
bool is_recorded_or_traced(std::initializer_list<const Tensor*> inputs) {
  const Mode now = mode;
  if (now.grad_off || now.trace != nullptr) return now.trace != nullptr;
  return std::any_of(inputs.begin(), inputs.end(), [](const Tensor* t) { return *t && t->impl()->node != nullptr; });
}

bool needs_record(const char* op, const Tensor& y, std::initializer_list<const Tensor*> inputs) {
  bool any = false;
  for (const Tensor* input : inputs) {
    if (!*input) continue;
    const Tensor::Impl& from = *input->impl();
    any = any || from.node;
    if (from.batch || from.shard_spec) take_over(op, y, from);
  }
  const Mode& now = mode;
  return now.trace != nullptr || (any && !now.grad_off);
}

bool is_grad_recorded(std::span<const Tensor> tensors) {
  return !mode.grad_off && mode.trace == nullptr &&
         std::any_of(tensors.begin(), tensors.end(), [](const Tensor& t) { return t && t.impl()->node; });
}

GradMode::GradMode(bool on) : before_(std::exchange(mode.grad_off, !on)) {}
GradMode::~GradMode() { mode.grad_off = before_; }

Trace::Trace() : before_(std::exchange(mode.trace, this)) {}
Trace::~Trace() { mode.trace = before_; }

}  // namespace trireme
