#include "framework/layers/recompute.h"

#include "framework/autograd/step_context.h"
#include "framework/autograd/tape.h"
#include "framework/layers/sequential.h"
#include "framework/tensor/fields.h"

namespace trireme {

Tensor Recompute::operator()(const Tensor& x) const {
  Module layer = layer_;                                    // a handle
  std::vector<Tensor> inputs{x.with_shard_spec({})};        // the layer's ops handle divided tensors
  std::vector<std::pair<std::string, SavedTensor>> fields;  // fields of x that need a gradient: inputs 1, 2, ...
  for (const auto& [name, t] : x.fields()) {
    if (!t.requires_grad()) continue;
    inputs.push_back(t.with_shard_spec({}));
    fields.emplace_back(name, t.detach());
  }
  std::vector<SavedTensor> weights;  // the layer's own handles, which may show another version by then
  layer.visit(StateVisitor([&](const NamedState& leaf) {
    if (leaf.kind == StateKind::buffer) return;
    inputs.push_back(leaf.tensor->with_shard_spec({}));
    weights.emplace_back(*leaf.tensor);
  }));
  if (!is_grad_recorded(inputs)) return layer(x);

  // The second forward draws the same masks as the first.
  StepContext again = StepContext::current();
  again.recomputing = true;
  if (again.batch.calls) again.batch.calls = std::make_shared<RandomCalls>(*again.batch.calls);
  const BatchPtr batch = replay_batch(x.impl()->batch);
  Tensor y;
  {
    const NoGrad no_grad;
    const Tensor out = layer(x);
    for (const auto& [name, t] : out.fields()) {
      const auto given = x.fields().find(name);
      check(!is_float(t.dtype()) || (given != x.fields().end() && given->second.id() == t.id()), "recompute",
            "the layer attaches a field '{}' to its result, through which no gradient would flow: put the layers that "
            "create and read it in one Recompute, or leave out the layer that creates it",
            name);
    }
    y = out.detach();
    y.impl()->fields = out.impl()->fields;  // with the gradients of those that came with x
  }
  const SavedTensor kept(x.detach());
  if (options_.offload && x.impl()->node) detail::offload(x);  // without a node, x is a batch, which its caller reads
  return record("recompute", std::move(y), std::move(inputs),
                [layer, kept, fields, weights, again, batch](const Tensor& dy, Gradients& g) {
                  for (const SavedTensor& w : weights) w.get();  // throws if one has changed
                  StepContext now = again;
                  if (now.batch.calls) now.batch.calls = std::make_shared<RandomCalls>(*now.batch.calls);
                  const StepScope pass(std::move(now));
                  const GradMode recorded(true);
                  Tensor in = kept.get().detach();
                  in.impl()->batch = replay_batch(batch);
                  in.require_grad(g.needs_grad(0));
                  std::vector<Tensor> beside;
                  Tensor with = in;
                  for (const auto& [name, t] : fields) {
                    beside.push_back(t.get().detach().require_grad());
                    beside.back().impl()->batch = replay_batch(beside.back().impl()->batch);
                    with = with.with(name, beside.back());
                  }
                  const Tensor out = layer(with);
                  // Weights get their gradients inside; this op's own end calls their hooks.
                  if (!out.requires_grad()) return;  // the layer uses no input: all gradients are 0
                  backward({&out, 1}, {&dy, 1}, {.hooks = false});
                  if (g.needs_grad(0) && has_grad(in)) g.set_grad(0, in.grad());
                  for (std::size_t i = 0; i < beside.size(); ++i)
                    if (has_grad(beside[i])) g.set_grad(static_cast<int>(i) + 1, beside[i].grad());
                });
}

static Module wrapped(const Module& model, const std::string& prefix, std::span<const std::string> patterns,
                      const RecomputeOptions& options, std::vector<bool>& used) {
  if (const auto* again = model.as<Recompute>(); again && options.offload) return Recompute(again->layer(), options);
  const auto* layers = model.as<Sequential>();
  if (!layers) return model;
  Sequential all;
  for (std::size_t i = 0; i < layers->size(); ++i) {
    const std::string name = prefix + layers->name(i);
    bool matched = false;
    for (std::size_t p = 0; p < patterns.size(); ++p)
      if (matches(patterns[p], name)) matched = used[p] = true;
    const Module& layer = (*layers)[i];
    const auto* again = layer.as<Recompute>();
    all.add(layers->name(i), matched ? Module(Recompute(again ? again->layer() : layer, options))
                                     : wrapped(layer, name + ".", patterns, options, used));
  }
  return all;
}

Module recompute(const Module& model, std::span<const std::string> patterns, const RecomputeOptions& options) {
  std::vector<bool> used(patterns.size());
  Module all = wrapped(model, "", patterns, options, used);
  for (std::size_t p = 0; p < patterns.size(); ++p)
    check(used[p], "recompute",
          "no layer of a Sequential is called '{}'. trireme plan show names parts and blocks; * matches any characters",
          patterns[p]);
  return all;
}

}  // namespace trireme
