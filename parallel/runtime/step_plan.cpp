#include "parallel/runtime/step_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "framework/tensor/fields.h"
#include "parallel/async/channel_plan.h"
#include "parallel/comm/virtual_clock.h"
#include "parallel/comm/world/compare.h"
#include "parallel/model/part_costs.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/codec.h"
#include "parallel/plan/ties.h"
#include "parallel/runtime/step_graph.h"
#include "parallel/split/split.h"
#include "parallel/strategies/agreements.h"
#include "parallel/strategies/on_call.h"
#include "parallel/strategies/rebuild.h"

namespace trireme {
namespace {

/// Measures costs on the example, on rank 0, so that all ranks cut alike; in virtual time they are counted. Layers that
/// are split over ranks need all ranks. In virtual time, and if they cut texts, the slowest rank's costs count.
void measure_parts(std::vector<PartInfo>& parts, const Chain& chain, Parameters& parameters, const Tensor& example,
                   bool all, bool cuts_texts, bool keeps_memory, World& world) {
  std::vector<PartCost> costs(parts.size());
  if (world.clock())
    costs = count_costs(chain, parameters, example, world.clock()->cluster().rates());
  else if (world.rank() == 0 || all)
    costs = measure_costs(chain, parameters, example, 5, keeps_memory);
  std::vector<double> numbers;
  for (const PartCost& c : costs)
    for (double number :
         {c.forward, c.backward_input, c.backward_weight, static_cast<double>(c.saved), static_cast<double>(c.output)})
      numbers.push_back(number);
  const Tensor shared = Tensor::of(numbers, {std::ssize(numbers)}, DType::f64);
  if (cuts_texts || world.clock())
    world.comm().all_reduce(shared, ReduceOp::max).wait();
  else
    world.comm().broadcast(shared, 0).wait();
  const double* v = shared.data<double>();
  for (auto& part : parts) {
    part.cost = {v[0], v[1], v[2], static_cast<Index>(v[3]), static_cast<Index>(v[4])};
    v += 5;
  }
}

/// Throws Error if a mesh axis has two uses: its ranks are stages, have different rows of the batch, or share layers
/// and rows.
void check_one_use(const Plan& plan, const SplitOptions& split, const std::vector<std::string>& own_layers) {
  std::map<std::string, std::string> uses;
  const auto use = [&](const std::string& axis, const std::string& how) {
    if (axis.empty() || plan.size(axis) == 1) return;
    const auto [at, first] = uses.try_emplace(axis, how);
    check(first || at->second == how, "step",
          "mesh axis '{}' of {} ranks has two uses, {} and {}: name another axis of the mesh for one of them, by the "
          "strategy's option axis",
          axis, plan.size(axis), at->second, how);
  };
  if (plan.has_stages()) use(plan.stage_axis, "for the stages of a pipeline");
  for (const std::string& axis : split.image) use(axis, "to cut images");
  use(split.context, "to cut texts");
  for (const std::string& axis : weight_axes(split))
    if (axis != split.one_weird_trick && std::ranges::count(split.experts, axis) == 0) use(axis, "to cut weights");
  for (const std::string& axis : own_layers) use(axis, "by the model's own layers");
  const std::vector<std::string> batch = names_in(batch_axis(plan, split));
  for (const std::string& axis : batch) use(axis, "to divide the batch");
  for (const std::string& axis : split.apart_axes())
    check(plan.size(axis) == 1 || std::ranges::count(batch, axis) > 0, "experts",
          "mesh axis '{}' of {} ranks neither divides the batch nor cuts samples or weights: add "
          "data_parallel(axis={}), or name another axis",
          axis, plan.size(axis), axis);
}

/// Checks that every axis of several ranks is used by the plan or for layers, and that programs match the mesh.
void check_mesh(const Plan& plan, const Mesh& mesh, const std::vector<std::string>& layer_axes) {
  auto axes = names_in(plan.reduced_axis());
  if (plan.has_stages()) axes.push_back(plan.stage_axis);
  axes.insert(axes.end(), layer_axes.begin(), layer_axes.end());
  for (auto& [axis, promised] : plan.consistency) axes.push_back(axis);
  for (auto& a : mesh.axes())
    check(
        a.size == 1 || std::find(axes.begin(), axes.end(), a.name) != axes.end(), "step",
        "mesh axis '{}' has {} ranks, but strategy '{}' uses only '{}': leave the axis out, or add a strategy that "
        "uses it",
        a.name, a.size,
        [&] { return plan.strategies.empty() ? "serial" : fmt::format("{}", fmt::join(plan.strategies, " | ")); },
        fmt::join(axes, "', '"));
  check(!plan.has_stages() || !plan.programs.front().where.empty() ||
            static_cast<int>(plan.programs.size()) == mesh.size(plan.stage_axis),
        "step", "the plan has {} programs along '{}', but the mesh has {} ranks there: use equal numbers",
        plan.programs.size(), plan.stage_axis, mesh.size(plan.stage_axis));
}

/// Throws Error for tensors shared by parts in several programs. Such a weight has a gradient in each program, which
/// the plan must sum. Shared buffers and random layers, which count their calls, would differ between programs.
void refuse_shared_across_programs(const Plan& plan, const Chain& chain, const Parameters& parameters) {
  std::map<const void*, int> home;
  std::map<const void*, Slice> trained;
  for (const Parameters::Entry& e : parameters.entries()) trained[e.tensor.id()] = e.slice;
  const auto sums = [&](int program, const Slice& slice) {
    return program >= 0 && !tied_sums(plan.programs[static_cast<std::size_t>(program)], slice).empty();
  };
  const auto refuse = [&](const void* id, int p, const char* what, const std::string& name, const char* remedy) {
    const int first = home.try_emplace(id, p).first->second, here = plan.program_of(p), there = plan.program_of(first);
    const auto entry = trained.find(id);
    const bool summed = entry != trained.end() && sums(here, entry->second) && sums(there, entry->second);
    check(here == there || summed, "step", "parts '{}' and '{}' share the {} '{}', but are in different stages{}",
          plan.parts[static_cast<std::size_t>(first)].name, plan.parts[static_cast<std::size_t>(p)].name, what, name,
          remedy);
  };
  for (int p = 0; p < chain.size() && plan.programs.size() > 1; ++p) {
    for (auto& [id, name] : chain.tensors(p))
      if (trained.contains(id))
        refuse(id, p, "weight", name, ", which do not sum its gradients: use pipeline(), or cut elsewhere");
      else
        refuse(id, p, "buffer", name, ": cut elsewhere");
    for (auto& [key, name] : chain.random_layers(p))
      refuse(key, p, "random layer", name,
             ", which would draw the same mask: give each a separate layer, or cut elsewhere");
  }
}

/// Faults that check() finds; empty: the plan is sound. One of the ranks with the same plan checks it for all. A
/// collective call.
std::string faults_of(const Plan& plan, Mesh& mesh, const std::vector<std::string>& tensor_parallel_axes) {
  const std::string alike = all_axes(plan, tensor_parallel_axes);
  Communicator* comm = alike.empty() ? nullptr : &mesh.comm(alike);
  std::string verdict;
  if (!comm || comm->rank() == 0) {
    const auto faults = check(plan, mesh.size(plan.reduced_axis()));
    if (!faults.empty()) verdict = faults[0];
    if (faults.size() > 1) verdict += fmt::format(" (and {} faults more)", faults.size() - 1);
  }
  if (!comm) return verdict;
  const TrafficMeter::Pause pause(mesh.meter());
  return broadcast_text(*comm, verdict, 0);
}

/// Throws Error for options that a Step does not support in an asynchronous pipeline.
void refuse_with_asynchronous(const Strategy& strategy, const StepOptions& o) {
  check(!strategy.split.any() && o.layer_axes.empty(), "step",
        "layers that are split over ranks use views of their weights, of which schedules pipedream and 2bw keep "
        "no versions yet: leave one of the two out");
  check(o.loss_scale == 0, "step",
        "loss scaling cannot be combined with schedules pipedream and 2bw: stages update at different times and "
        "cannot report an overflow to each other");
}

}  // namespace

Module split_layers(const Strategy& strategy, Module model, Mesh& mesh, const Tensor& example, bool initialized) {
  if (!strategy.split.any()) return model;
  if (initialized)
    model.visit(StateVisitor([&](const NamedState& leaf) { mesh.world().comm().broadcast(*leaf.tensor, 0).wait(); }));
  return split(model, mesh, strategy.split, example, !strategy.acts_on_updates());
}

std::vector<std::string> tensor_parallel_axes(const StepOptions& options, const SplitOptions& split) {
  auto axes = options.layer_axes;
  for (std::string& name : weight_axes(split)) axes.push_back(std::move(name));
  return axes;
}

Tensor microbatch_example(const Plan& plan, const Strategy& strategy, const PartProfile& o) {
  if (!o.example || o.batch == 0) return o.example;
  const auto trains = std::ranges::find(plan.programs, false, &Program::serves);
  check(
      trains != plan.programs.end(), "step",
      "messages start all programs of the plan, but one program must train: add a program that messages do not start");
  const int shares = plan.tickets > 0 ? plan.tickets : plan.size(*trains, batch_axis(plan, strategy.split));
  const Index all = static_cast<Index>(shares) * plan.microbatches;
  const Index rows = std::max<Index>(1, (o.batch + all - 1) / all), given = o.example.dim(0);
  if (rows == given) return o.example;
  return map_fields(o.example, [&](const Tensor& t) {
    Shape shape = t.shape();
    shape[0] = rows;
    const Tensor x = Tensor::empty(shape, t.dtype(), t.device());
    for (Index row = 0; row < rows; row += given) {
      const Index count = std::min(given, rows - row);
      x.rows(row, row + count).copy_from(t.rows(0, count));
    }
    return x;
  });
}

Plan with_agreements(const Plan& plan, const Strategy& strategy, const StepOptions& o, const Optimizer& optimizer,
                     const Loss& loss) {
  if (is_asynchronous(plan)) refuse_with_asynchronous(strategy, o);
  FiniteChecks checks = o.checks;
  if (!checks.finite) checks.every = 0;
  if (o.loss_scale > 0 || (checks.finite && sums_in_f16(plan))) checks = {.every = 1};
  return with_phases_on_call(with_agreements(plan, {.batch_axis = batch_axis(plan, strategy.split),
                                                    .checks = checks,
                                                    .flags = o.flags,
                                                    .norm = optimizer.wants_norm(),
                                                    .ratios = optimizer.tensors_with_ratios(),
                                                    .count = loss.ignored() != nullptr}),
                             tensor_parallel_axes(o, strategy.split));
}

Plan make_plan(const Strategy& strategy, const Chain& chain, const Loss& loss, Optimizer& optimizer, Mesh& mesh,
               const StepOptions& o) {
  Parameters& parameters = optimizer.parameters();
  auto parts = chain.parts(parameters);
  for (PartInfo& part : parts) part.divided = divided_slices(parameters, part.slice);
  const auto begin = [&] {
    Plan plan = serial(parts, parameters.size(), parts.back().buffers.end, mesh.axes());
    plan.partition = o.profile.partition;
    plan.epoch_steps = o.epoch_steps;
    plan.wants_tickets = o.tickets;
    return plan;
  };
  if (o.profile.example && (mesh.world().clock() || (strategy.wants_costs && o.profile.partition.empty()))) {
    const Plan rough = strategy(begin());  // throws before anything runs
    check_one_use(rough, strategy.split, o.layer_axes);
    const Tensor x = mesh.world().clock() ? microbatch_example(rough, strategy, o.profile) : o.profile.example;
    measure_parts(parts, chain, parameters, x, strategy.split.any() || !o.layer_axes.empty(),
                  !strategy.split.context.empty(), !o.initialize, mesh.world());
  }
  Plan plan = strategy(begin());
  if (o.cuda_graphs)  // a graph runs all passes at once
    if (Plan after = gather_after_updates(plan); StepGraph::serves(after)) plan = std::move(after);
  if (!plan.has_stages()) plan.partition.clear();
  check(strategy.split.one_weird_trick.empty() || !plan.has_stages(), "step",
        "one_weird_trick gathers the rows of all ranks, which stages of a pipeline have at different times: "
        "leave one of the two out");
  plan = with_agreements(plan, strategy, o, optimizer, loss);
  check_one_use(plan, strategy.split, o.layer_axes);
  std::vector<std::string> layer_axes = tensor_parallel_axes(o, strategy.split);
  for (const std::string& axis : strategy.split.sample_axes()) layer_axes.push_back(axis);
  check_mesh(plan, mesh, layer_axes);
  if (o.refuse_unsound) {
    const std::string verdict = faults_of(plan, mesh, tensor_parallel_axes(o, strategy.split));
    check(verdict.empty(), "plan", "{}", verdict);
  }
  refuse_shared_across_programs(plan, chain, parameters);
  check(o.loss_scale == 0 || !meets_by_messages(plan), "step",
        "loss scaling cannot be combined with servers or asynchronous gossip, whose ranks exchange messages only: "
        "no rank could report an overflow to all");
  for (const Program& program : plan.programs)
    check(o.loss_scale == 0 || std::ranges::all_of(program.actions, [](const Action& a) { return a.codec == nullptr; }),
          "step", "encoded gradients cannot be combined with loss scaling: leave one of the two out");
  return plan;
}

}  // namespace trireme
