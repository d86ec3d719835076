// trireme plan simulate: predicts steps of the settings' strategy on a cluster. No rank is started.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/core/runtime.h"
#include "parallel/analysis/draw.h"
#include "parallel/comm/call.h"
#include "parallel/comm/world/mesh.h"
#include "parallel/comm/world/norm_ranks.h"
#include "parallel/plan/action_kind.h"
#include "tools/cli/simulate_basis.h"
#include "tools/cli/simulate_scaling.h"

namespace trireme {
namespace {

/// Prints the traffic of all steps. With `shown`, prints only lines that differ from it.
void print_traffic(const Plan& plan, const Simulation& s, const Simulation& shown = {}) {
  fmt::print("\n{:<16} {:<20} {:>14} {:>16} {:>14} {:>8}\n", "program", "axis", "link is busy", "payload bytes",
             "exposed", "of all");
  for (std::size_t r = 0; r < plan.programs.size(); ++r)
    for (const AxisTraffic& t : s.traffic[r]) {
      const auto still = std::ranges::find(s.exposed[r], t.axis, &AxisTraffic::axis);
      const double exposed = still == s.exposed[r].end() ? 0 : still->seconds;
      if (t.bytes > 0 && (shown.traffic.empty() || std::ranges::find(shown.traffic[r], t) == shown.traffic[r].end()))
        fmt::print("{:<16} {:<20} {:>14} {:>16} {:>14} {:>6.1f} %\n", plan.programs[r].name, t.axis,
                   time_text(t.seconds), t.bytes, time_text(exposed), 100 * exposed / s.makespan);
    }
}

/// Prints each phase that does not run in the simulated step, in a step that has it.
void print_rare_steps(const DescribedPlan& described, const Cluster& cluster, const Simulation& shown) {
  const Plan& plan = described.plan;
  for (const ProgramPhase& phase : rare_phases(plan)) {
    const Trigger& when = phase.trigger;
    const std::int64_t step = when.from + ((when.offset - when.from) % when.every + when.every) % when.every;
    if (when.runs_at(described.traffic.step) || !when.runs_at(step)) continue;
    const Simulation other = described.simulate_on(cluster, plan, step);
    fmt::print("\na step with {} ({}) takes {}\n", phase.name, to_string(when), time_text(other.makespan));
    print_traffic(plan, other, shown);
  }
}

void print_efficiency(const DescribedPlan& described, const Cluster& cluster, const Simulation& s, double step,
                      Index batch, int steps) {
  const auto [exposed, program] = most_exposed(described.plan, s);
  fmt::print(
      "efficiency {:.1f} %: compute time of these samples on one device, divided among all devices by speed, over the "
      "time of the step\n",
      100 * efficiency_of(described, cluster, described.mesh, batch, step));
  fmt::print("bubble {:.1f} %: idle over busy time of all ranks\n", 100 * s.bubble);
  fmt::print("exposed communication {}, {:.1f} % of the step{}: computation waits for a call\n",
             time_text(exposed / steps), 100 * exposed / s.makespan, program.empty() ? "" : ", in " + program);
}

/// Prints where the steps' time goes, in parts that add up to all of it. s: without jitter; whole: with it.
void print_shares(const Plan& plan, const Simulation& s, double whole) {
  const auto share = [whole](double seconds) { return fmt::format("{:.1f} %", 100 * seconds / whole); };
  for (std::size_t r = 0; r < plan.programs.size(); ++r) {
    const auto row = std::ranges::find(s.timeline.programs, static_cast<int>(r)) - s.timeline.programs.begin();
    double updates = 0, left = s.makespan - s.busy[r];
    for (const Span& span : s.timeline.spans)
      if (span.rank == row &&
          plan.programs[r].actions[static_cast<std::size_t>(span.action)].kind == ActionKind::update)
        updates += span.end - span.begin;
    std::string text = fmt::format("time of {}: computation {}, optimizer {}", plan.programs[r].name,
                                   share(s.busy[r] - updates), share(updates));
    for (const AxisTraffic& t : s.exposed[r]) {
      text += fmt::format(", exposed communication over {} {}", t.axis, share(t.seconds));
      left -= t.seconds;
    }
    text += ", bubble " + share(std::max(0.0, left));
    fmt::print("{}{}\n", text, whole > s.makespan ? ", jitter " + share(whole - s.makespan) : "");
  }
}

/// Prints the calls whose time is at least a twentieth of the steps, up to three of a program.
void print_longest_calls(const Plan& plan, const Simulation& s, int steps) {
  bool norms = false;
  for (std::size_t r = 0; r < plan.programs.size(); ++r)
    for (std::size_t i = 0; i < std::min<std::size_t>(3, s.calls[r].size()); ++i) {
      const CallTime& c = s.calls[r][i];
      if (c.seconds < 0.05 * s.makespan) break;
      const bool message = c.kind == CallKind::send;
      fmt::print("{}: {} {}{} over {} of {}{}, {}, {:.1f} % of the step{}\n", c.what, c.calls / steps, name_of(c.kind),
                 c.calls == steps ? "" : "s", message ? "links" : fmt::format("{} ranks", c.ranks), c.axis,
                 message ? "" : fmt::format(" by {}", c.algorithm), time_text(c.seconds / steps),
                 100 * c.seconds / s.makespan, s.calls.size() > 1 ? ", in " + plan.programs[r].name : "");
      norms = norms || c.what == norm_statistics;
    }
  if (norms) fmt::print("--parallel.norm_scope local leaves out the calls of batch norms\n");
}

}  // namespace

int simulate_command(const TrainerOptions& config, const PlanOptions& options) {
  if (config.parallel.threads > 0)
    set_threads(static_cast<int>(config.parallel.threads));
  else if (config.parallel.cluster.empty())
    set_threads(1);  // a device is one core
  const std::string collectives = collectives_of(config, options);
  if (!options.sweep.empty()) return sweep_ranks(config, options);
  const std::vector<Axis> mesh = mesh_axes(config);
  const Cluster given = cluster_of(config, ranks_of(mesh));
  check_room(given, mesh);
  DescribedPlan described(config, mesh, options.cost, given.rates());
  const Cluster cluster = cluster_of(config, described, ranks_of(mesh));
  described.plan = described.rank_plan(config, mesh);
  described.collectives = collectives;
  const Plan& plan = described.plan;
  const Simulation s = described.simulate_on(cluster, plan, described.traffic.step, options.steps);
  fmt::print("{}\n{}", in_words(cluster), plan.summary());
  if (!collectives.empty()) fmt::print("collectives simulated message by message, all-reduces by {}\n", collectives);
  if (s.expected)
    fmt::print("jitter {}: not sampled; ranks that wait for each other take the expected maximum of up to {}\n",
               cluster.jitter, ranks_of(mesh));
  described.print_costs();
  const Index batch = config.data.batch;
  const double step = s.makespan / options.steps;
  const std::string steps =
      options.steps == 1
          ? fmt::format("a step of {} samples on {} ranks takes {}", batch, ranks_of(mesh), time_text(step))
          : fmt::format("{} steps of {} samples on {} ranks take {}, {} each", options.steps, batch, ranks_of(mesh),
                        time_text(s.makespan), time_text(step));
  described.print_times(
      s, fmt::format("predicted: {}, {:.1f} samples per second", steps, static_cast<double>(batch) / step));
  fmt::print("{}\n", described.caveat(options.steps));
  const PredictionBasis basis = basis_of(described, cluster, ranks_of(mesh));
  print_efficiency(described, cluster, s, step, batch, options.steps);
  Cluster steady = cluster;
  steady.jitter = 0;
  print_shares(plan,
               cluster.jitter > 0 ? described.simulate_on(steady, plan, described.traffic.step, options.steps) : s,
               s.makespan);
  print_longest_calls(plan, s, options.steps);
  fmt::print("the step may take {}\n\n{}", basis.range(step), basis.table());
  print_traffic(plan, s);
  fmt::print("payload: {}\n", payload_in_words);
  if (options.steps == 1) print_rare_steps(described, cluster, s);
  const MemoryOptions numbers = memory_options(config, described.model.parameters);
  const auto memory = predict_memory(plan, numbers);
  fmt::print("\n{}{}{}", memory_table(plan, memory), phases_table(plan, predict_phases(plan, numbers)),
             memory_verdict(cluster, plan, memory));
  if (s.timeline.programs.size() <= 64) fmt::print("\n{}", gantt(plan, s.timeline, terminal_width()));
  write_drawings(options, plan, s.timeline, plan.summary());
  return 0;
}

}  // namespace trireme
