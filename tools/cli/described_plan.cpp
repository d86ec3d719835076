#include "tools/cli/described_plan.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "datasets/formats/synthetic.h"
#include "parallel/analysis/draw.h"
#include "parallel/async/channel_plan.h"
#include "parallel/model/dry_run.h"
#include "parallel/model/memory.h"
#include "parallel/model/part_costs.h"
#include "parallel/model/part_memory.h"
#include "parallel/plan/action_kind.h"
#include "parallel/runtime/step_plan.h"
#include "tools/training/from_options.h"
#include "tools/training/machine_file.h"

namespace trireme {

std::vector<Axis> mesh_axes(const TrainerOptions& config) {
  if (!config.parallel.mesh.empty()) {
    (void)make_ranks(config);  // throws if the number of ranks does not match the mesh
    return parse_mesh(config.parallel.mesh);
  }
  return {{"data", static_cast<int>(config.parallel.ranks)}};
}

DescribedModel::DescribedModel(const TrainerOptions& config)
    : settings(config),
      shape(usual_options(config)),
      device(make_device(config)),
      model(make_undrawn_model(config, shape, device)),
      chain(model),
      parameters(model),
      dtype(make_dtype(config)) {}

Batch DescribedModel::sample(Index rows) const {
  const Dataset data = synthetic_data(settings, shape, rows);
  return *Loader(data, {.batch = rows, .workers = 0, .dtype = dtype, .device = device}).begin();
}

std::vector<PartCost> DescribedModel::measured_costs(Index rows) {
  initialize(model, static_cast<std::uint64_t>(settings.seed));
  return measure_costs(chain, parameters, input(rows));
}

Plan DescribedModel::plan(const Strategy& strategy, std::vector<PartInfo> parts, const std::vector<Axis>& mesh,
                          Index numbers) const {
  const Index buffers = parts.back().buffers.end;
  return strategy(serial(std::move(parts), numbers > 0 ? numbers : parameters.size(), buffers, mesh));
}

Plan DescribedModel::whole_plan(const TrainerOptions& config, const Strategy& strategy, std::vector<PartInfo> parts,
                                const std::vector<Axis>& mesh, Index numbers) {
  const StepOptions steps = step_options(config);
  const Optimizer optimizer(parameters, make_optimizer(config, 1000), steps.optimizer);
  Plan whole =
      with_agreements(plan(strategy, std::move(parts), mesh, numbers), strategy, steps, optimizer, make_loss(config));
  const auto faults = trireme::check(whole, whole.size(whole.reduced_axis()));
  check(faults.empty(), "plan", "{}", fmt::join(faults, "\n      "));
  return whole;
}

/// states: numbers of optimizer state per parameter, for the config's optimizer.
MemoryOptions memory_options(const TrainerOptions& config, Parameters& parameters) {
  Optimizer optimizer(parameters, make_optimizer(config, 1000));
  optimizer.keep({});
  const bool host = parameters.values().device_of(0).kind == DeviceKind::cpu;
  return {.element = size_of(parameters.dtype()),
          .states = static_cast<int>(optimizer.state().size()),
          .page = host ? host_page : 1};
}

std::string DescribedModel::memory(const TrainerOptions& config, const Plan& plan) {
  const MemoryOptions options = memory_options(config, parameters);
  return memory_table(plan, predict_memory(plan, options)) + phases_table(plan, predict_phases(plan, options));
}

namespace {

LayerSplit layer_split(const Strategy& of, const std::vector<Axis>& axes) {
  LayerSplit split{.strategy = !of.split.any()             ? ""
                               : !of.split.image.empty()   ? "spatial"
                               : !of.split.context.empty() ? "context"

                                                           : "layers",
                   .divides_batch_axis = !of.split.one_weird_trick.empty(),
                   .experts_over_data = std::ranges::count(of.split.apart_axes(), "data") > 0};
  for (const Axis& axis : axes)
    if (of.split.any() && axis.name != "data") split.axes.push_back(axis);
  return split;
}

/// Rank models of the layer split of `of`, with costs counted from shapes. described must outlive the result.
ImaginedModelOptions imagined_options(const TrainerOptions& config, const DescribedModel& described, const Strategy& of,
                                      const DeviceRates& rates) {
  Strategy alone;  // of it: whose rows batch norms take
  alone.norm_scope = of.norm_scope;
  alone.norm_group = of.norm_group;
  return {.model = [&described, config](bool) { return make_undrawn_model(config, described.shape, described.device); },
          .samples =
              [&described](Index n) {
                const Batch batch = described.sample(n);
                return std::pair(batch.x, batch.y);
              },
          .loss = make_loss(config),
          .keeps_outputs = step_options(config).keep_outputs != nullptr,
          .strategy = [of, alone](const std::string& text) { return text == "serial" ? alone : of; },
          .rates = rates};
}

}  // namespace

DescribedPlan::DescribedPlan(const TrainerOptions& config, const std::vector<Axis>& axes, const std::string& from,
                             const DeviceRates& device)
    : mesh(axes),
      strategy(make_strategy(config, ranks_of(axes))),
      model(config),
      cost(from),
      rates(device),
      parts(model.chain.parts(model.parameters)) {
  if (!cost.empty() && cost != "measured" && cost != "equal" && cost != "counted") {
    if (!std::filesystem::exists(cost))
      throw OptionError(
          fmt::format("--cost is '{}', expected measured, counted, equal or an existing machine file", cost));
    const MachineProfile machine = read_machine(cost);
    profile = model_in(machine, config, 0);
    calls = machine.calls;
    fresh = machine.fresh.value;
    vector_op = machine.vector_op.value;
    jitter = machine.jitter;
    busy = busy_in_words(machine);
  }
  if (strategy.split.any()) {  // checked before the measurement, which may take minutes
    ImaginedModels tried(imagined_options(config, model, strategy, {}));
    const bool splits = tried(layer_split(strategy, axes), false, 1, size_along(axes, "data")).has_value();
    check(splits, "simulate", "{}", tried.refusal());
  }
  // The number of micro-batches decides which rows to measure. The measured costs may then move the stages.
  const Plan rough = model.plan(strategy, parts, mesh);
  const Index shares = static_cast<Index>(batch_ranks(rough, strategy.split)) * rough.microbatches;
  const Index each = std::max<Index>(1, (config.data.batch + shares - 1) / shares);
  if (cost.empty()) {
    constexpr double soon = 1e11;  // operations of a micro-batch that machines of two cores repeat within seconds
    double operations = 0;
    for (const PartCost& c : count_costs(model.chain, model.parameters, model.input(1), {1}))
      operations += c.forward + c.backward_input + c.backward_weight;
    cost = operations * static_cast<double>(each) <= soon ? "measured" : "counted";
  }
  set_rows(each);
  plan = model.whole_plan(config, strategy, parts, mesh);
  traffic.parameters = model.parameters.dtype();
  if (!strategy.split.tensor.empty()) traffic.divided = {strategy.split.tensor};
  traffic.step = 1;  // traffic of step 0, which includes rare phases
  traffic.norm = Optimizer(model.parameters, make_optimizer(config, 1000), step_options(config).optimizer).wants_norm();
  traffic.states = memory_options(config, model.parameters).states;
}

/// Largest dry run. Costs of more rows are extrapolated linearly.
constexpr Index most_run = 64;

static std::vector<PartCost> line_through(std::vector<PartCost> half, const std::vector<PartCost>& most, Index rows) {
  const double share = static_cast<double>(rows - most_run / 2) / static_cast<double>(most_run / 2);
  for (std::size_t p = 0; p < half.size(); ++p) {
    for (double PartCost::*s : {&PartCost::forward, &PartCost::backward_input, &PartCost::backward_weight})
      half[p].*s = std::max(0.0, half[p].*s + share * (most[p].*s - half[p].*s));
    move_bytes(half[p], most[p], share);
  }
  return half;
}

void DescribedPlan::set_rows(Index asked) {
  if (asked == rows && first_rows > 0) return;
  rows = asked;
  first_rows = first_rows > 0 ? first_rows : asked;
  constexpr double each = 1e-3;  // seconds of each part's forward and of its backward, if all parts cost the same
  const double share = each * static_cast<double>(rows) / static_cast<double>(first_rows);
  if (profile) {
    beside = costs_at(*profile, rows);
    check(beside.parts.size() == parts.size(), ErrorKind::data, "profile",
          "{} has {} parts of {}, which now has {}; measure again with trireme bench --machine", cost,
          beside.parts.size(), profile->model, parts.size());
  }
  const auto counted = [&](Index n) { return count_costs(model.chain, model.parameters, model.input(n), rates); };
  const auto costs =
      profile              ? beside.parts
      : cost == "measured" ? model.measured_costs(rows)
      : cost == "counted"
          ? rows <= most_run ? counted(rows) : line_through(counted(most_run / 2), counted(most_run), rows)
          : std::vector<PartCost>(parts.size(), {share, share, share});
  for (std::size_t p = 0; p < parts.size(); ++p) parts[p].cost = costs[p];
}

std::string DescribedPlan::cost_in_words() const {
  return cost == "equal"      ? "all alike"
         : cost == "measured" ? "measured here on one rank"
         : cost == "counted"
             ? fmt::format("counted from shapes, at {:.3g} operations and {:.3g} bytes of memory per second",
                           rates.flops, rates.memory_bandwidth)
             : "of " + cost;
}

Source DescribedPlan::cost_source() const {
  return cost == "equal" || cost == "counted" || beside.extrapolated ? Source::assumed : Source::measured;
}

double DescribedPlan::alone(Index samples) const {
  double each = beside.loss;
  for (const PartInfo& part : parts) each += part.cost.forward + part.cost.backward_input + part.cost.backward_weight;
  return each * static_cast<double>(samples) / static_cast<double>(rows) + beside.between +
         beside.update * static_cast<double>(model.parameters.size());
}

void DescribedPlan::imagine_ranks(const TrainerOptions& config, Plan& of) {
  traffic.loss = imagine(of, strategy,
                         {.model = [&] { return make_undrawn_model(config, model.shape, model.device); },
                          .x = model.input(rows),
                          .loss = make_loss(config),
                          .keeps_outputs = step_options(config).keep_outputs != nullptr,
                          .labels = model.sample(rows).y});
}

Plan DescribedPlan::rank_plan(const TrainerOptions& config, const std::vector<Axis>& axes) {
  const Strategy of = make_strategy(config, ranks_of(axes));
  if (!of.split.any()) {
    Plan whole = model.whole_plan(config, of, parts, axes);
    // Dry runs of more rows and ranks take long, because each dry run gathers as much as a real rank.
    const bool usual = std::ranges::all_of(axes, [](const Axis& a) { return a.name == "data" || a.name == "pipe"; });
    if (!usual || (rows <= most_run && size_along(axes, "data") <= most_run)) {
      imagine_ranks(config, whole);
      return whole;
    }
  }
  if (!rank_models) {
    ImaginedModelOptions options = imagined_options(config, model, of, rates);
    options.costs = [this](Index) {
      std::vector<PartCost> costs;
      for (const PartInfo& part : parts) costs.push_back(part.cost);
      return costs;
    };
    rank_models = std::make_shared<ImaginedModels>(std::move(options));
  }
  const LayerSplit split = layer_split(of, axes);
  auto rank = (*rank_models)(split, false, rows, size_along(axes, "data"));
  check(rank.has_value(), "simulate", "{}", rank_models->refusal());
  weights = rank->weights;
  if (cost == "equal") {  // cost is proportional to rows; reading fewer weights makes a rank no faster
    const double least = split.divides_batch_axis ? 1 : 1.0 / ranks_of(split.axes);
    for (PartInfo& part : rank->parts) {
      const auto whole = std::ranges::find(parts, part.name, &PartInfo::name);
      if (whole == parts.end()) continue;
      for (double PartCost::*s : {&PartCost::forward, &PartCost::backward_input, &PartCost::backward_weight})
        part.cost.*s = std::max(part.cost.*s, least * (whole->cost.*s));
    }
  }
  return model.whole_plan(config, of, rank->parts, axes, rank->parameters);
}

std::string DescribedPlan::layers() const {
  return strategy.split.any() && weights ? layers_table(plan, *weights, rows) : "";
}

std::string collectives_of(const TrainerOptions& config, const PlanOptions& options) {
  const std::string& name = config.parallel.allreduce;
  const bool messages = options.collectives == "messages";
  if (name != "default" && (!messages || name == "auto"))
    throw OptionError(
        fmt::format("parallel.allreduce is {}; simulate takes the algorithms of the cluster file's [collectives]: "
                    "use default, {}",
                    name, messages ? "or an algorithm's name" : "or --collectives messages"));
  return !messages ? "" : name == "default" ? "ring" : name;
}

int batch_ranks(const Plan& plan, const SplitOptions& split) {
  const auto trains = std::ranges::find(plan.programs, false, &Program::serves);
  check(trains != plan.programs.end(), "plan",
        "messages start all programs, so none trains; give a plan with a program that reads data");
  for (const Program& server : plan.programs)
    for (const ProgramPhase& late : server.phases)
      for (const ProgramPhase& update : server.phases)
        if (late.trigger.late && !update.trigger.late && update.trigger.channel == late.trigger.channel)
          return update.trigger.count;
  return plan.size(*trains, batch_axis(plan, split));
}

std::vector<ProgramPhase> rare_phases(const Plan& plan) {
  std::vector<ProgramPhase> rare;
  for (const Program& program : plan.programs)
    for (const ProgramPhase& phase : program.phases)
      if (phase.trigger != Trigger{} && phase.trigger.by_step() && std::ranges::find(rare, phase) == rare.end())
        rare.push_back(phase);
  return rare;
}

Simulation DescribedPlan::simulate_on(const Cluster& cluster, const Plan& of, std::int64_t step, int steps) const {
  return simulate(of, {.cluster = cluster,
                       .element = size_of(model.parameters.dtype()),
                       .loss = beside.loss,
                       .update = beside.update,
                       .fresh = fresh,
                       .vector_op = vector_op,
                       .between_steps = beside.between,
                       .step = step,
                       .steps = steps,
                       .collectives = collectives});
}

void DescribedPlan::print_costs() const {
  fmt::print("\ncosts of a micro-batch of {} row{}, {}\n{:>4}  {:<24} {:>10} {:>12} {:>12} {:>12} {:>11} {:>11}\n",
             rows, rows == 1 ? "" : "s", cost_in_words(), "part", "name", "parameters", "forward", "by input",
             "by weight", "kept", "output");
  for (std::size_t p = 0; p < plan.parts.size(); ++p) {
    const PartInfo& part = plan.parts[p];
    fmt::print("{:>4}  {:<24} {:>10} {:>12} {:>12} {:>12} {:>8.2f} MB {:>8.2f} MB\n", p, part.name, part.slice.size(),
               time_text(part.cost.forward), time_text(part.cost.backward_input), time_text(part.cost.backward_weight),
               static_cast<double>(part.cost.saved) / 1e6, static_cast<double>(part.cost.output) / 1e6);
  }
}

void DescribedPlan::print_times(const Simulation& s, const std::string& headline) const {
  fmt::print("\n{}, idle {:.1f} % of busy time\n{:<16} {:>12} {:>12} {:>10}\n", headline, 100 * s.bubble, "program",
             "busy", "idle", "in flight");
  for (std::size_t r = 0; r < plan.programs.size(); ++r)
    fmt::print("{:<16} {:>12} {:>12} {:>10}\n", plan.programs[r].name, time_text(s.busy[r]),
               time_text(s.makespan - s.busy[r]), s.in_flight[r]);
}

std::string DescribedPlan::caveat(int steps) const {
  std::string text;
  for (const ProgramPhase& phase : rare_phases(plan)) {
    int with = 0;
    for (int step = 0; step < steps; ++step) with += phase.trigger.runs_at(traffic.step + step);
    text += steps == 1 ? fmt::format("the step shown is {} {}", with ? "with" : "without", phase.name)
                       : fmt::format("{} of the steps shown are with {}", with, phase.name);
    text += fmt::format(" ({})\n", to_string(phase.trigger));
  }
  const bool exchanges = std::ranges::any_of(plan.programs, [](const Program& p) {
    return std::ranges::any_of(p.actions, [](const Action& a) {
      return a.kind->calls && !is_collective(a) && !is_channel(a) && !is_message(a);
    });
  });
  if (exchanges)
    text +=
        "a partner that is busy with another exchange is not waited for: where exchanges take as long as a step, "
        "train --virtual is slower\n";
  if (!strategy.split.any()) return text;
  return text +
         "layers are split: times are those of the undivided model, in proportion to the operations that are left to a "
         "rank\n";
}

int terminal_width() {
  winsize window{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 ? window.ws_col : 120;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  check(file.good(), ErrorKind::file, "plan", "cannot write {}; give another path", path);
  fmt::print("written: {}\n", path);
}

void write_drawings(const PlanOptions& options, const Plan& plan, const Timeline& timeline, const std::string& text) {
  if (!options.trace.empty()) write_file(options.trace, trace_json(plan, timeline));
  if (!options.svg.empty()) write_file(options.svg, timeline_svg(plan, timeline));
  if (!options.html.empty()) write_file(options.html, timeline_html(plan, timeline, text));
}

}  // namespace trireme
