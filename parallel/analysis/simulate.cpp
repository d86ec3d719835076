#include "parallel/analysis/simulate.h"

#include <algorithm>

#include "parallel/analysis/simulator.h"
#include "parallel/comm/world/mesh.h"

namespace trireme {
namespace {

/// Whether one rank represents all ranks of its program.
bool folds(const SimPrograms& programs, Places& places) {
  const Plan& plan = programs.plan;
  const Folding folding = programs.options.folding;
  if (folding == Folding::unfolded) return false;
  const bool exchanges = std::ranges::any_of(
      programs.programs, [](const SimProgram& p) { return std::ranges::any_of(p.actions, &SimAction::ahead); });
  const bool ranged = !plan.programs.front().where.empty() || exchanges,
             messages = !programs.options.collectives.empty();
  const bool drawn =
      programs.cluster.jitter > 0 &&
      (!SimJitter::suits(programs) || (folding != Folding::folded && programs.grid.size() <= most_drawn));
  const bool alike = !ranged && !messages && !drawn && places.same_speed();
  if (folding == Folding::slowest) {
    if (alike) places.use_slowest();
    return alike;
  }
  const auto [program, id] = alike ? places.differing() : std::pair(-1, -1);
  if (folding == Folding::automatic) return alike && program < 0;
  check(!ranged, "simulate", "servers, and ranks that answer others, are simulated rank by rank");
  check(alike, "simulate", "ranks of one program take different times, by jitter, messages or their devices' speeds");
  check(program < 0, "simulate", "program {}: {} goes over links of several kinds",
        plan.programs[std::max(program, 0)].name, [&] { return to_string(plan.programs[program].actions[id]); });
  return true;
}

}  // namespace

Cluster flat_cluster(int ranks, const Link& link) {
  return {.nodes = {{.count = ranks}}, .inside = link, .between = link};
}

Simulation simulate(const Plan& plan, const SimulateOptions& options) {
  check(options.steps > 0, "simulate", "{} steps: simulate at least one", options.steps);
  check(plan.tickets == 0, "simulate", "a plan with tickets cannot be simulated yet: leave wants_tickets false");
  const Cluster cluster = options.cluster ? *options.cluster : flat_cluster(ranks_of(mesh_of(plan)));
  validate(cluster);
  const SimPrograms programs(plan, options, cluster);
  Places places(programs);
  const bool folded = folds(programs, places);
  const SimRanks ranks(programs, folded);
  SimRecord record(programs, places, ranks);
  Simulator sim(programs, places, ranks, record);
  const auto [rank, id] = sim.run();
  check(
      rank < 0, "simulate", "rank {}, program {}: {} never ends", [&] { return ranks.world[rank]; },
      [&] { return plan.programs[ranks.program[rank]].name; },
      [&] { return id < 0 ? "a step" : to_string(plan.programs[ranks.program[rank]].actions[id]); });
  Simulation result = record.simulation(sim.end());
  result.expected = folded && cluster.jitter > 0;
  return result;
}

}  // namespace trireme
