// trireme plan show: each rank's actions in a step and their times. Times are predicted from the costs of the model's
// parts, without starting ranks, or measured in a run.
#include <fmt/format.h>

#include <algorithm>

#include "datasets/formats/synthetic.h"
#include "framework/autograd/step_context.h"
#include "kernels/core/runtime.h"
#include "parallel/analysis/draw.h"
#include "parallel/analysis/draw_meetings.h"
#include "parallel/model/memory.h"
#include "parallel/plan/action_kind.h"
#include "parallel/runtime/step_plan.h"
#include "parallel/runtime/step_probe.h"
#include "tools/cli/commands.h"
#include "tools/cli/described_plan.h"

namespace trireme {
namespace {

struct Picture {
  Plan plan;
  Timeline timeline;
  std::vector<RankMemory> memory = {};    // by rank; empty: not measured
  std::vector<StepTraffic> traffic = {};  // likewise
};

/// Runs the strategy on threads for a few steps. Returns the last timeline, and the run's plan: its measured costs may
/// cut the model elsewhere.
Picture measure(const TrainerOptions& config, const DescribedPlan& described) {
  Picture picture;
  const DescribedModel& model = described.model;
  const ModelOptions shape = model.shape;
  const Dataset data = synthetic_data(config, shape, config.data.batch);
  StepOptions how = step_options(config);
  how.profile.example = model.input(described.rows);
  std::vector<StepTraffic> traffic(static_cast<std::size_t>(ranks_of(described.mesh)));
  World::threads(ranks_of(described.mesh), [&](World& world) {
    const Device device = make_device(config, world);
    Mesh mesh(world, described.mesh);
    Step step(make_model(config, shape, device), make_loss(config), make_optimizer(config, 1000), mesh,
              described.strategy, how);
    Loader loader(
        data,
        {.batch = config.data.batch, .shard = step.shard(), .workers = 0, .dtype = model.dtype, .device = device});
    auto batch = loader.begin();
    for (int run = 0; run < 4; ++run) {
      if (run == 0) StepProbe(step).record(true);  // includes allocations that are made once
      (void)step(batch->x, batch->y).item();
    }
    Timeline all = StepProbe(step).timeline();
    auto memory = StepProbe(step).memory();
    traffic[static_cast<std::size_t>(world.rank())] = StepProbe(step).traffic();
    if (world.main()) picture = {step.plan(), std::move(all), std::move(memory)};
  });
  picture.traffic = std::move(traffic);
  return picture;
}

}  // namespace

int plan_show(const TrainerOptions& config, const PlanOptions& options) {
  if (config.parallel.threads > 0) set_threads(static_cast<int>(config.parallel.threads));
  DescribedPlan described(config, mesh_axes(config), options.cost);
  described.imagine_ranks(config, described.plan);
  if (described.strategy.split.any()) described.plan = described.rank_plan(config, described.mesh);
  const Plan& plan = described.plan;
  int steps = 1;  // an asynchronous pipeline: enough steps to reach the steady state
  for (const Program& program : plan.programs)
    if (const int back = most_steps_back(program); back > 0) steps = std::max(steps, 2 + 2 * back);
  const Simulation simulation =
      simulate(plan, {.cluster = flat_cluster(ranks_of(described.mesh), {options.latency, options.bandwidth}),
                      .element = size_of(described.model.parameters.dtype()),
                      .step = described.traffic.step,
                      .steps = steps});
  const auto text = [&](const Plan& p) { return options.actions ? p.to_string() : p.summary(); };
  const std::string layers = described.layers();
  fmt::print("{}{}{}{}", text(plan), meetings_text(plan), layers.empty() ? "" : "\n", layers);
  described.print_costs();
  const std::string what = steps == 1 ? "a step takes" : fmt::format("the first {} steps take", steps);
  described.print_times(simulation, fmt::format("predicted: {} {}", what, time_text(simulation.makespan)));
  fmt::print("{}", described.caveat(steps));
  const MemoryOptions memory = memory_options(config, described.model.parameters);
  if (!options.measure)
    fmt::print("\n{}\n{}", described.model.memory(config, plan), traffic_table(plan, described.traffic));
  fmt::print("\n{}", gantt(plan, simulation.timeline, terminal_width()));
  Picture shown{plan, simulation.timeline};
  if (options.measure) {
    shown = measure(config, described);
    if (shown.plan.hash() != plan.hash()) fmt::print("\nthe run cut the model at other layers:\n{}", text(shown.plan));
    fmt::print("\n{}", gantt(shown.plan, shown.timeline, terminal_width()));
    described.imagine_ranks(config, shown.plan);  // of the run's plan: its cuts, and its split layers
    fmt::print("\n{}",
               memory_table(shown.plan, predict_memory(shown.plan, memory), shown.memory, shown.timeline.programs));
    fmt::print("\n{}", traffic_table(shown.plan, described.traffic, shown.traffic));
  }
  write_drawings(options, shown.plan, shown.timeline, shown.plan.to_string() + (layers.empty() ? "" : "\n" + layers));
  return 0;
}

}  // namespace trireme
