#include "framework/layers/recompute.h"

#include "framework/autograd/step_context.h"
#include "framework/autograd/tape.h"

namespace trireme {

Tensor Recompute::operator()(const Tensor& x) const {
  Module layer = layer_;                              // a handle
  std::vector<Tensor> inputs{x.with_shard_spec({})};  // the layer's ops see to spreads
  std::vector<SavedTensor> weights;                   // the layer's own handles, which may show another version by then
  layer.visit(StateVisitor([&](const NamedState& leaf) {
    if (leaf.use == StateKind::buffer) return;
    inputs.push_back(leaf.tensor->with_shard_spec({}));
    weights.emplace_back(*leaf.tensor);
  }));
  if (!is_grad_recorded(inputs)) return layer(x);

  // The second forward draws the masks that the first one drew.
  StepContext again = StepContext::current();
  again.recomputing = true;
  if (again.batch.calls) again.batch.calls = std::make_shared<RandomCalls>(*again.batch.calls);
  const BatchPtr batch = replay_batch(x.impl()->batch);
  Tensor y;
  {
    const NoGrad no_grad;
    y = layer(x).detach();
  }
  return record("recompute", std::move(y), std::move(inputs),
                [layer, kept = SavedTensor(x.detach()), weights, again, batch](const Tensor& dy, Gradients& g) {
                  for (const SavedTensor& w : weights) w.get();  // throws where one is no longer what it was
                  StepContext now = again;
                  if (now.batch.calls) now.batch.calls = std::make_shared<RandomCalls>(*now.batch.calls);
                  const StepScope pass(std::move(now));
                  const GradMode is_recorded_or_traced(true);
                  Tensor in = kept.get().detach();
                  in.impl()->batch = replay_batch(batch);
                  in.require_grad(g.needs_grad(0));
                  const Tensor out = layer(in);
                  // Weights get their gradients in there; this op's own end tells their hooks.
                  backward({&out, 1}, {&dy, 1}, {.hooks = false});
                  if (g.needs_grad(0)) g.set_grad(0, in.grad());
                });
}

}  // namespace trireme
