#include "parallel/model/part_costs.h"

#include "framework/autograd/step_context.h"
#include "framework/autograd/tape.h"
#include "kernels/core/runtime.h"
#include "parallel/model/dry_run.h"

namespace trireme {
namespace {

double seconds_of(Device device, const std::function<void()>& work) { return runtime(device.kind).timed(device, work); }

/// One forward and backward of a part. x and what is stashed become what it hands on, without history.
PartCost run_once(const Chain& chain, int part, Tensor& x, Stashed& stashed) {
  PartCost cost;
  Runtime& memory = runtime(x.device().kind);
  Tensor in = x.detach(), out;
  if (part > 0) in.require_grad();
  for (auto& [name, t] : stashed) t = t.detach().require_grad();
  const std::size_t before = memory.in_use();
  cost.forward = seconds_of(x.device(), [&] { out = chain.run(part, in, stashed); });
  cost.saved = static_cast<Index>(memory.in_use()) - static_cast<Index>(before);
  cost.output = out.view().bytes();
  for (auto& [name, t] : stashed) cost.output += t.view().bytes();
  x = out.detach();
  if (!out.requires_grad()) return cost;
  const Tensor seed = Tensor::full(out.shape(), 1, out.dtype(), out.device());
  Deferred weights;
  cost.backward_input = seconds_of(x.device(), [&] {
    backward(std::span(&out, 1), std::span(&seed, 1), {.defer_weights = &weights, .hooks = false});
  });
  cost.backward_weight = seconds_of(x.device(), [&] { weights.run(); });
  return cost;
}

StepContext alone() {
  StepContext pass = StepContext::current();
  pass.recomputing = true;  // running statistics stay
  pass.batch.samples = {};
  pass.norm = {};
  return pass;
}

}  // namespace

std::vector<PartCost> measure_costs(const Chain& chain, Parameters& parameters, const Tensor& x, int runs) {
  check(x.dim(0) > 0 && runs > 0, "measure_costs", "{} rows and {} runs: there must be at least one of each", x.dim(0),
        runs);
  const StepScope scope(alone());
  const GradMode on(true);
  std::vector<PartCost> costs(static_cast<std::size_t>(chain.size()));
  for (int run = -1; run < runs; ++run) {
    Tensor at = x;
    Stashed stashed;
    for (int p = 0; p < chain.size(); ++p) {
      const PartCost now = run_once(chain, p, at, stashed);
      PartCost& least = costs[static_cast<std::size_t>(p)];
      if (run <= 0) {
        least = now;
        continue;
      }
      least.forward = std::min(least.forward, now.forward);
      least.backward_input = std::min(least.backward_input, now.backward_input);
      least.backward_weight = std::min(least.backward_weight, now.backward_weight);
    }
    parameters.clear_grads();
  }
  return costs;
}

std::vector<PartCost> count_costs(const Chain& chain, Parameters& parameters, const Tensor& x,
                                  double operations_per_second) {
  check(x.dim(0) > 0 && operations_per_second > 0, "count_costs",
        "{} rows and {} operations a second: both must be above 0", x.dim(0), operations_per_second);
  const StepScope scope(alone());
  const DryRun run =
      dry_run(chain, parameters, chain.parts(parameters), x, {.operations_per_second = operations_per_second});
  std::vector<PartCost> costs;
  for (const PartInfo& part : run.parts) costs.push_back(part.cost);
  return costs;
}

}  // namespace trireme
