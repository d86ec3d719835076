// trireme plan show: what every rank does in a step, what it holds, and when, predicted from the costs of the model's
// parts. No rank is started; only the mesh's sizes count.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fstream>

#include "datasets/datasets.h"
#include "framework/pass.h"
#include "kernels/runtime.h"
#include "parallel/draw.h"
#include "parallel/part_costs.h"
#include "parallel/simulate.h"
#include "tools/commands.h"
#include "tools/recipe.h"

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

std::vector<Axis> mesh_axes(const Config& config) {
  if (!config.parallel.mesh.empty()) return parse_mesh(config.parallel.mesh);
  return {{"data", static_cast<int>(config.parallel.ranks)}};
}
int size_along(const std::vector<Axis>& mesh, const std::string& axis) {
  for (const Axis& a : mesh)
    if (a.name == axis) return a.size;
  return 1;
}

ModelOptions shape_of(const Config& config) {
  ModelOptions shape = model_row(config.model).usual;
  if (config.data.image_size > 0) shape.input = {config.data.image_size, config.data.image_size, shape.input[2]};
  return shape;
}

/// The model and one batch to try its parts on.
struct Subject {
  explicit Subject(const Config& config)
      : shape(shape_of(config)),
        model(make_model(config, shape)),
        chain(model),
        parameters(model),
        dtype(make_dtype(config)) {}
  /// Noise in the shape of `rows` samples.
  Tensor input(Index rows) const {
    const Dataset data = Synthetic({.size = rows, .shape = shape.input, .classes = shape.classes});
    return Loader(data, {.batch = rows, .workers = 0, .dtype = dtype}).begin()->x;
  }
  Plan plan(const Strategy& strategy, const std::vector<PartCost>& costs, const std::vector<Axis>& mesh) const {
    auto parts = chain.parts(parameters);
    for (std::size_t p = 0; p < costs.size(); ++p) parts[p].cost = costs[p];
    Index buffers = 0;
    for (auto& b : parameters.buffers()) buffers += b.tensor.numel();
    return strategy(serial(std::move(parts), parameters.size(), buffers, mesh));
  }

  ModelOptions shape;
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

void print_simulation(const Plan& plan, const Simulation& s) {
  fmt::print("\npredicted: a step takes {}, idle {:.1f} % of busy time\n{:<16} {:>12} {:>12} {:>10}\n",
             time_text(s.makespan), 100 * s.bubble, "role", "busy", "idle", "in flight");
  for (std::size_t r = 0; r < plan.roles.size(); ++r)
    fmt::print("{:<16} {:>12} {:>12} {:>10}\n", plan.roles[r].name, time_text(s.busy[r]),
               time_text(s.makespan - s.busy[r]), s.in_flight[r]);
}

}  // namespace

int plan_show(const Config& config, const PlanOptions& options) {
  if (config.parallel.threads > 0) set_threads(static_cast<int>(config.parallel.threads));
  const std::vector<Axis> mesh = mesh_axes(config);
  const Strategy strategy = make_strategy(config, ranks_of(mesh));
  Subject subject(config);
  // How many micro-batches there are decides what rows to measure; the measured costs may move the stages.
  Plan plan = subject.plan(strategy, {}, mesh);
  const Index shares = static_cast<Index>(size_along(mesh, "data")) * plan.micros;
  const Index rows = std::max<Index>(1, (config.data.batch + shares - 1) / shares);
  const bool measured = options.cost == "measured";
  constexpr double each = 1e-3;  // seconds: of every part's forward and backward halves, where all cost the same
  plan = subject.plan(strategy,
                      measured ? measure_costs(subject.chain, subject.parameters, subject.input(rows))
                               : std::vector<PartCost>(plan.parts.size(), {each, each, each}),
                      mesh);
  const auto faults = check(plan, size_along(mesh, "data"));
  check(faults.empty(), "plan", "{}", fmt::join(faults, "\n      "));

  const Simulation simulation = simulate(plan, {.mesh = mesh,
                                                .latency = options.latency,
                                                .bandwidth = options.bandwidth,
                                                .element = size_of(subject.parameters.dtype())});
  const std::string picture = gantt(plan, simulation.timeline, terminal_width());
  fmt::print("{}", plan.to_string());
  print_costs(plan, rows, measured);
  print_simulation(plan, simulation);
  fmt::print("\n{}", picture);
  if (!options.trace.empty()) write_file(options.trace, trace_json(plan, simulation.timeline));
  if (!options.svg.empty()) write_file(options.svg, timeline_svg(plan, simulation.timeline));
  if (!options.html.empty()) write_file(options.html, timeline_html(plan, simulation.timeline, plan.to_string()));
  return 0;
}

}  // namespace trireme
