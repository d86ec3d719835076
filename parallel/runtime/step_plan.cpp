#include "parallel/runtime/step_plan.h"

#include "parallel/model/part_costs.h"
#include "parallel/split/split.h"

namespace trireme {
namespace {

/// What rank 0 measures on the example, so that all cut alike. Layers that are split over ranks need the others, too.
void measure(std::vector<PartInfo>& parts, const Chain& chain, Parameters& parameters, const Tensor& example, bool all,
             World& world) {
  std::vector<PartCost> costs(parts.size());
  if (world.rank() == 0 || all) costs = measure_costs(chain, parameters, example);
  const Tensor shared = Tensor::zeros({5 * static_cast<Index>(parts.size())}, DType::f64);
  auto* v = shared.data<double>();
  for (const PartCost& c : costs) {
    const double saved = static_cast<double>(c.saved), output = static_cast<double>(c.output);
    for (double number : {c.forward, c.backward_input, c.backward_weight, saved, output}) *v++ = number;
  }
  world.comm().broadcast(shared, 0).wait();
  v = shared.data<double>();
  for (auto& part : parts) {
    part.cost = {v[0], v[1], v[2], static_cast<Index>(v[3]), static_cast<Index>(v[4])};
    v += 5;
  }
}

}  // namespace

Strategy strategy_or_default(std::optional<Strategy> given, Mesh& mesh) {
  if (given) return *std::move(given);
  return mesh.world().size() > 1 ? data_parallel() : Strategy();
}

Module split_layers(const Strategy& strategy, Module model, Mesh& mesh) {
  if (!strategy.split.any()) return model;
  model.visit(StateVisitor([&](const NamedState& leaf) { mesh.world().comm().broadcast(*leaf.tensor, 0).wait(); }));
  return split(model, mesh, strategy.split);
}

std::vector<std::string> tensor_parallel_axes(const StepOptions& options, const SplitOptions& split) {
  auto axes = options.layer_axes;
  for (const std::string& name : {split.tensor, split.one_weird})
    if (!name.empty()) axes.push_back(name);
  return axes;
}

Plan make_plan(const Strategy& strategy, const Chain& chain, Parameters& parameters, Mesh& mesh, const StepOptions& o) {
  auto parts = chain.parts(parameters);
  for (PartInfo& part : parts) part.divided = divided_over(parameters, part.slice);
  const Index buffers = parts.back().buffers.end;
  if (o.example && strategy.wants_costs && o.partition.empty())
    measure(parts, chain, parameters, o.example, strategy.split.any() || !o.layer_axes.empty(), mesh.world());
  Plan plan = serial(std::move(parts), parameters.size(), buffers, mesh.axes());
  plan.partition = o.partition;
  plan = strategy(std::move(plan));
  if (plan.roles.size() == 1) plan.partition.clear();
  return plan;
}

}  // namespace trireme
