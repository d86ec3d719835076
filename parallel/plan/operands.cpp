#include "parallel/plan/operands.h"

#include <fmt/format.h>

#include <array>

#include "parallel/plan/action_row.h"
#include "parallel/plan/codec.h"

namespace trireme {
namespace {

constexpr std::array kinds = {"weights", "gradients", "state", "statistics", "activation", "gradient of the activation",
                              "scratch", "number"};

bool is_slice(const Operand& o) { return o.kind <= OperandKind::statistics; }

}  // namespace

bool Operand::overlaps(const Operand& o) const {
  if (kind != o.kind || name != o.name || version != o.version) return false;
  return is_slice(*this) ? slice.overlaps(o.slice) : part == o.part && microbatch == o.microbatch;
}

std::string to_string(const Operand& o) {
  std::string text = kinds[static_cast<std::size_t>(o.kind)];
  if (!o.name.empty()) text += " " + o.name;
  if (is_slice(o)) return fmt::format("{} [{}, {})", text, o.slice.begin, o.slice.end);
  return o.part < 0 && !o.name.empty() ? text
                                       : fmt::format("{} of part {} micro {}", text, o.part, to_string(o.microbatch));
}

Access accesses(const Plan& plan, const Program& program, const Liveness& live, const Action& a) {
  Access all = a.kind->access ? a.kind->access(plan, program, live, a) : Access{};
  for (const std::string& name : codec_states(a))
    if (!name.empty()) all.writes.push_back({.kind = OperandKind::state, .slice = a.slice, .name = name});
  return all;
}

}  // namespace trireme
