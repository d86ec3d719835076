// The part of check(plan) for phases on call: the parts, slices and axes that their actions name must exist. Programs
// whose ranks call collectives together in a phase must make the same calls.
#include <set>

#include "parallel/plan/check/diagnostics.h"

namespace trireme {
namespace {

void check_call_action(const Plan& plan, const Program& program, const ProgramPhase& phase, ActionId id,
                       Diagnostics& faults) {
  const Action& a = phase.actions[static_cast<std::size_t>(id)];
  const auto fault = [&](const std::string& text) {
    faults.add("program {}, on call '{}', action {} ({}): {}", program.name, phase.name, id, to_string(a), text);
  };
  const Index block = a.payload == OperandKind::statistics ? plan.buffers : plan.parameters;
  const bool is_state =
      a.payload == OperandKind::weights || a.payload == OperandKind::statistics || a.payload == OperandKind::state;
  if (is_state && (a.slice.begin < 0 || a.slice.end > block || a.slice.size() <= 0))
    fault(fmt::format("its slice is outside of the block of {} numbers", block));
  if (a.part >= std::ssize(plan.parts)) fault(fmt::format("there are only {} parts", plan.parts.size()));
  for (const ActionId before : a.after)
    if (before < 0 || before >= id) fault("it waits for an action that does not come before it");
  if (a.peer.root >= plan.size(a.peer.axis))
    fault(fmt::format("its root is rank {}, which the axis does not have", a.peer.root));
}

/// A program's calls in a phase along these axes, as text.
std::string calls_along(const Program& program, const std::string& phase, const std::set<std::string>& axes) {
  std::string all;
  for (const ProgramPhase& p : program.phases)
    for (const Action& a : p.trigger.on_call&& p.name == phase ? p.actions : std::vector<Action>{}) {
      const auto names = names_in(a.peer.axis);
      if (!is_message(a) && std::ranges::any_of(names, [&](const std::string& n) { return axes.contains(n); }))
        all += to_string(a) + "\n";
    }
  return all;
}

}  // namespace

void check_on_call(const Plan& plan, Diagnostics& faults) {
  std::set<std::string> phases, meet;  // axes along which programs differ
  if (plan.has_stages()) meet.insert(plan.stage_axis);
  for (const Program& program : plan.programs) {
    for (const CoordinateRange& range : program.where) meet.insert(range.axis);
    for (const ProgramPhase& phase : program.phases) {
      if (!phase.trigger.on_call) continue;
      phases.insert(phase.name);
      for (ActionId id = 0; id < std::ssize(phase.actions); ++id) check_call_action(plan, program, phase, id, faults);
    }
  }
  for (const std::string& phase : phases)
    for (const Program& program : plan.programs)
      if (calls_along(program, phase, meet) != calls_along(plan.programs[0], phase, meet))
        faults.add(
            "on call '{}' program {} does not make the calls of program {}, whose ranks take part in the same "
            "collectives",
            phase, program.name, plan.programs[0].name);
}

}  // namespace trireme
