#include "parallel/plan/operands.h"

#include <fmt/format.h>

#include "parallel/plan/action_row.h"
#include "parallel/plan/codec.h"

namespace trireme {
bool Operand::overlaps(const Operand& o) const {
  if (kind != o.kind || name != o.name || version != o.version) return false;
  return is_slice(kind) ? slice.overlaps(o.slice) : part == o.part && microbatch == o.microbatch;
}

std::string to_string(const Operand& o) {
  std::string text = to_string(o.kind);
  if (!o.name.empty()) text += " " + o.name;
  if (is_slice(o.kind)) return fmt::format("{} [{}, {})", text, o.slice.begin, o.slice.end);
  const bool of_part = o.kind == OperandKind::activation || o.kind == OperandKind::cotangent || o.part >= 0;
  return of_part ? fmt::format("{} of part {} micro {}", text, o.part, to_string(o.microbatch)) : text;
}

std::vector<std::vector<Operand>> accesses(const Plan& plan, const Program& program) {
  const Liveness live(program);
  std::vector<std::vector<Operand>> all;
  for (const Action& a : program.actions) {
    auto& own = all.emplace_back();
    if (a.kind->access) own = a.kind->access(plan, program, live, a);
    for (const std::string& name : codec_states(a))
      if (!name.empty()) own.push_back({.kind = OperandKind::state, .slice = a.slice, .name = name, .written = true});
  }
  return all;
}

}  // namespace trireme
