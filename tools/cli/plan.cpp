// trireme plan show: what every rank does in a step and when, predicted from the costs of the model's parts (no rank is
// started, only the mesh's sizes count), or measured in a run.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fstream>

#include "datasets/formats/synthetic.h"
#include "framework/autograd/step_context.h"
#include "kernels/core/runtime.h"
#include "parallel/analysis/draw.h"
#include "parallel/analysis/imagine.h"
#include "parallel/analysis/simulate.h"
#include "parallel/model/part_costs.h"
#include "parallel/plan/memory.h"
#include "parallel/runtime/step_plan.h"
#include "tools/cli/commands.h"
#include "tools/training/from_options.h"

namespace trireme {
namespace {

int terminal_width() {
  winsize window{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 ? window.ws_col : 120;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  check(file.good(), "plan", "cannot write {}", path);
  fmt::print("written: {}\n", path);
}

std::vector<Axis> mesh_axes(const TrainerOptions& config) {
  if (!config.parallel.mesh.empty()) return parse_mesh(config.parallel.mesh);
  return {{"data", static_cast<int>(config.parallel.ranks)}};
}

/// The model and one batch to try its parts on.
struct Subject {
  explicit Subject(const TrainerOptions& config)
      : shape(usual_options(config)),
        device(make_device(config)),
        model(make_model(config, shape, device)),
        chain(model),
        parameters(model),
        dtype(make_dtype(config)) {}
  /// Noise in the shape of `rows` samples.
  Tensor input(Index rows) const {
    const Dataset data = Synthetic({.size = rows, .shape = shape.input, .classes = shape.classes});
    return Loader(data, {.batch = rows, .workers = 0, .dtype = dtype, .device = device}).begin()->x;
  }
  Plan plan(const Strategy& strategy, std::vector<PartInfo> parts, const std::vector<Axis>& mesh) const {
    const Index buffers = parts.back().buffers.end;
    return strategy(serial(std::move(parts), parameters.size(), buffers, mesh));
  }

  ModelOptions shape;
  Device device;
  Module model;
  Chain chain;
  Parameters parameters;
  DType dtype = DType::f32;
};

void print_costs(const Plan& plan, Index rows, bool measured) {
  fmt::print("\ncosts of a micro-batch of {} row{}, {}\n{:>4}  {:<24} {:>10} {:>12} {:>12} {:>12} {:>11} {:>11}\n",
             rows, rows == 1 ? "" : "s", measured ? "measured here on one rank" : "all alike", "part", "name",
             "parameters", "forward", "by input", "by weight", "kept", "output");
  for (std::size_t p = 0; p < plan.parts.size(); ++p) {
    const PartInfo& part = plan.parts[p];
    fmt::print("{:>4}  {:<24} {:>10} {:>12} {:>12} {:>12} {:>8.2f} MB {:>8.2f} MB\n", p, part.name, part.slice.size(),
               time_text(part.cost.forward), time_text(part.cost.backward_input), time_text(part.cost.backward_weight),
               static_cast<double>(part.cost.saved) / 1e6, static_cast<double>(part.cost.output) / 1e6);
  }
}

struct Picture {
  Plan plan;
  Timeline timeline;
  std::vector<RankMemory> memory = {};    // by rank; empty: not measured
  std::vector<StepTraffic> traffic = {};  // likewise
};

/// Numbers of state that the config's optimizer has per parameter.
int states_of(const TrainerOptions& config, Parameters& parameters) {
  Optimizer optimizer(parameters, make_optimizer(config, 1000));
  optimizer.keep({});
  return static_cast<int>(optimizer.state().size());
}

void print_simulation(const Plan& plan, const Simulation& s) {
  fmt::print("\npredicted: a step takes {}, idle {:.1f} % of busy time\n{:<16} {:>12} {:>12} {:>10}\n",
             time_text(s.makespan), 100 * s.bubble, "role", "busy", "idle", "in flight");
  for (std::size_t r = 0; r < plan.roles.size(); ++r)
    fmt::print("{:<16} {:>12} {:>12} {:>10}\n", plan.roles[r].name, time_text(s.busy[r]),
               time_text(s.makespan - s.busy[r]), s.in_flight[r]);
}

/// Runs the strategy on threads for a few steps; the last one's timeline, and the plan (which measures costs of its
/// own, so that it may cut the model elsewhere).
Picture measure(const TrainerOptions& config, const Strategy& strategy, const std::vector<Axis>& mesh_axes,
                Subject& subject, Index rows) {
  Picture picture;
  const ModelOptions shape = subject.shape;
  const Dataset data = Synthetic({.size = config.data.batch, .shape = shape.input, .classes = shape.classes});
  const Tensor example = subject.input(rows);
  std::vector<StepTraffic> traffic(static_cast<std::size_t>(ranks_of(mesh_axes)));
  World::threads(ranks_of(mesh_axes), [&](World& world) {
    const Device device = make_device(config, world);
    Mesh mesh(world, mesh_axes);
    Step step(make_model(config, shape, device), make_loss(config), make_optimizer(config, 1000), mesh, strategy,
              {.optimizer = {.clip_norm = config.optim.clip_norm},
               .loss_scale = config.dtype == "f16" ? config.loss_scale : 0,
               .example = example});
    Loader loader(
        data,
        {.batch = config.data.batch, .shard = step.shard(), .workers = 0, .dtype = subject.dtype, .device = device});
    auto batch = loader.begin();
    for (int run = 0; run < 4; ++run) {
      step.record(run == 3);
      (void)step(batch->x, batch->y).item();
    }
    Timeline all = step.timeline();
    auto memory = step.memory();
    traffic[static_cast<std::size_t>(world.rank())] = step.traffic();
    if (world.main()) picture = {step.plan(), std::move(all), std::move(memory)};
  });
  picture.traffic = std::move(traffic);
  return picture;
}

}  // namespace

int plan_show(const TrainerOptions& config, const PlanOptions& options) {
  if (config.parallel.threads > 0) set_threads(static_cast<int>(config.parallel.threads));
  const std::vector<Axis> mesh = mesh_axes(config);
  const Strategy strategy = make_strategy(config, ranks_of(mesh));
  Subject subject(config);
  // How many micro-batches there are decides what rows to measure; what is measured may move the stages.
  auto parts = subject.chain.parts(subject.parameters);
  const int microbatches = subject.plan(strategy, parts, mesh).microbatches;
  const Index shares = static_cast<Index>(size_along(mesh, "data")) * microbatches;
  const Index rows = std::max<Index>(1, (config.data.batch + shares - 1) / shares);
  const bool measured = options.cost == "measured";
  constexpr double each = 1e-3;  // seconds: of every part's forward and backward halves, where all cost the same
  auto costs = measured ? measure_costs(subject.chain, subject.parameters, subject.input(rows))
                        : std::vector<PartCost>(parts.size(), {each, each, each});
  for (std::size_t p = 0; p < parts.size(); ++p) parts[p].cost = costs[p];
  const StepOptions steps{.loss_scale = config.dtype == "f16" ? config.loss_scale : 0};
  const Optimizer optimizer(subject.parameters, make_optimizer(config, 1000), {.clip_norm = config.optim.clip_norm});
  Plan plan = with_agreements(subject.plan(strategy, std::move(parts), mesh), strategy, steps, optimizer);
  const auto faults = check(plan, size_along(mesh, "data"));
  check(faults.empty(), "plan", "{}", fmt::join(faults, "\n      "));
  TrafficOptions traffic;
  traffic.parameters = subject.parameters.dtype();
  traffic.divided = strategy.split.tensor, traffic.step = 1;  // what is only of some steps is of step 0
  traffic.norm = optimizer.wants_norm();
  traffic.loss = imagine(plan, strategy,
                         {.model = [&] { return make_model(config, subject.shape, subject.device); },
                          .x = subject.input(rows),
                          .loss = make_loss(config),
                          .labels = Tensor::zeros({rows}, DType::i64, subject.device)});

  const Simulation simulation = simulate(
      plan,
      {.latency = options.latency, .bandwidth = options.bandwidth, .element = size_of(subject.parameters.dtype())});
  const auto text = [&](const Plan& p) { return options.actions ? p.to_string() : p.summary(); };
  fmt::print("{}", text(plan));
  print_costs(plan, rows, measured);
  print_simulation(plan, simulation);
  if (strategy.split.any())
    fmt::print(
        "times are those of the undivided model, and so are weights: what its layers cost when ranks share them, only "
        "--measure knows\n");
  const MemoryOptions memory{.element = size_of(subject.parameters.dtype()),
                             .states = states_of(config, subject.parameters)};
  if (!options.measure)
    fmt::print("\n{}\n{}", memory_table(plan, predict_memory(plan, memory)), traffic_table(plan, traffic));
  fmt::print("\n{}", gantt(plan, simulation.timeline, terminal_width()));
  Picture shown{plan, simulation.timeline};
  if (options.measure) {
    shown = measure(config, strategy, mesh, subject, rows);
    if (shown.plan.hash() != plan.hash()) fmt::print("\nthe run cut the model elsewhere:\n{}", text(shown.plan));
    fmt::print("\n{}", gantt(shown.plan, shown.timeline, terminal_width()));
    const bool same = shown.plan.parts.size() == plan.parts.size();  // else layers that are split brought parts along
    for (std::size_t p = 0; same && p < plan.parts.size(); ++p) shown.plan.parts[p].cost = plan.parts[p].cost;
    const Plan& predicted = same ? shown.plan : plan;
    fmt::print("\n{}measured activations are with their gradients, and with what kernels need for a call\n",
               memory_table(predicted, predict_memory(predicted, memory), shown.memory, shown.timeline.roles));
    fmt::print("\n{}", traffic_table(shown.plan, traffic, shown.traffic));
  }
  if (!options.trace.empty()) write_file(options.trace, trace_json(shown.plan, shown.timeline));
  if (!options.svg.empty()) write_file(options.svg, timeline_svg(shown.plan, shown.timeline));
  if (!options.html.empty())
    write_file(options.html, timeline_html(shown.plan, shown.timeline, shown.plan.to_string()));
  return 0;
}

}  // namespace trireme
