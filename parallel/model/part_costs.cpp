#include "parallel/model/part_costs.h"

#include "framework/autograd/node.h"
#include "framework/autograd/step_context.h"
#include "kernels/core/runtime.h"
#include "parallel/model/dry_run.h"
#include "parallel/plan/shards.h"
#include "parallel/plan/ties.h"

namespace trireme {
namespace {

std::vector<PartCost> costs_of(const std::vector<PartInfo>& parts) {
  std::vector<PartCost> costs;
  for (const PartInfo& part : parts) costs.push_back(part.cost);
  return costs;
}

StepContext alone() {
  StepContext context = StepContext::current();
  context.recomputing = true;  // running statistics do not change
  context.batch.samples = {};
  context.norm = {};
  return context;
}

}  // namespace

std::vector<PartCost> measure_costs(const Chain& chain, Parameters& parameters, const Tensor& x, int runs,
                                    bool keeps_memory) {
  check(x.dim(0) > 0 && runs > 0, "measure_costs", "{} rows and {} runs: there must be at least one of each", x.dim(0),
        runs);
  const StepScope scope(alone());
  const FlatBuffer& values = parameters.values();
  std::vector<Slice> absent;  // weights without memory on a device, by part
  for (const PartInfo& part : chain.parts(parameters))
    if (!keeps_memory && x.device().kind != DeviceKind::cpu && resident_bytes(values, part.slice) == 0)
      absent.push_back(part.slice);
  const auto release = [&](const Slice& slice) {
    if (keeps_memory) return;
    release_gradients(parameters, slice, {slice.begin, slice.begin});
    for (const Slice& s : absent)
      if (slice.begin <= s.begin && s.end <= slice.end) zero_pages(values, s);
  };
  const SpendOn timed = [&](PartInfo& part, ActionKind kind, double& cost, const std::function<void()>& pass) {
    if (!keeps_memory && kind == ActionKind::forward) {
      restore_pages(values, part.slice);
      for (const Slice& tied : part.tied) restore_pages(values, tied);
    }
    if (!keeps_memory && kind == ActionKind::backward_weight)
      for (const Parameters::Entry& e : parameters.entries())
        if (e.slice.overlaps(part.slice) || overlaps(part.tied, e.slice)) detail::restore_grad(e.tensor);
    cost = runtime(x.device().kind).timed(x.device(), pass);
    if (kind == ActionKind::backward_weight) release(part.slice);
  };
  std::vector<PartCost> costs;
  for (int run = -1; run < runs; ++run) {
    auto parts = chain.parts(parameters);
    run_parts(chain, parts, x, {}, timed);
    release({0, parameters.size()});  // of weights that parts share, too
    parameters.clear_grads();
    if (run <= 0) costs = costs_of(parts);
    for (std::size_t p = 0; p < parts.size(); ++p)
      for (double PartCost::*cost : {&PartCost::forward, &PartCost::backward_input, &PartCost::backward_weight})
        costs[p].*cost = std::min(costs[p].*cost, parts[p].cost.*cost);
  }
  return costs;
}

std::vector<PartCost> count_costs(const Chain& chain, Parameters& parameters, const Tensor& x,
                                  const DeviceRates& rates) {
  check(x.dim(0) > 0 && rates.flops > 0 && rates.memory_bandwidth > 0, "count_costs",
        "{} rows, {} operations and {} bytes a second: all must be above 0", x.dim(0), rates.flops,
        rates.memory_bandwidth);
  const StepScope scope(alone());
  return costs_of(dry_run(chain, parameters, chain.parts(parameters), x, {.rates = rates}).parts);
}

}  // namespace trireme
