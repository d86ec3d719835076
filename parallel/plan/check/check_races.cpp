// The part of check(plan) that finds races: two actions of a program that touch the same operand, one of them writing
// it, while neither waits for the other.
#include "parallel/plan/check/diagnostics.h"
#include "parallel/plan/operands.h"

namespace trireme {
namespace {

/// The first operand of one list that meets one of the other; null: none.
const Operand* common(const std::vector<Operand>& a, const std::vector<Operand>& b) {
  for (const Operand& x : a)
    for (const Operand& y : b)
      if (x.overlaps(y)) return &x;
  return nullptr;
}

}  // namespace

void check_races(const Plan& plan, const std::vector<HappensBefore>& orders, Diagnostics& faults) {
  for (std::size_t r = 0; r < plan.programs.size(); ++r) {
    const Program& program = plan.programs[r];
    const Liveness live(program);
    std::vector<Access> all;
    for (const Action& a : program.actions) all.push_back(accesses(plan, program, live, a));
    for (ActionId a = 0; a < std::ssize(program.actions); ++a)
      for (ActionId b = a + 1; b < std::ssize(program.actions); ++b) {
        if (orders[r](a, b) || orders[r](b, a)) continue;
        const Operand* shared = common(all[a].writes, all[b].writes);
        if (!shared) shared = common(all[a].writes, all[b].reads);
        if (!shared) shared = common(all[a].reads, all[b].writes);
        if (shared)
          faults.add("{} and {} both touch the {}, and neither waits for the other", place(program, a),
                     place(program, b), to_string(*shared));
      }
  }
}

}  // namespace trireme
