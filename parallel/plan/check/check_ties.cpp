// The part of check(plan) for weights that parts of several programs use: each of these programs has a copy. The
// gradients of the copies are summed over all these programs, after the last backward and after each sum with other
// ranks, and before anything uses them. Afterwards the programs do the same to their copies, so that the copies stay
// equal bit by bit.
#include <fmt/ranges.h>

#include "parallel/plan/check/diagnostics.h"
#include "parallel/plan/ties.h"

namespace trireme {
namespace {

class Ties {
 public:
  Ties(const Plan& plan, const std::vector<HappensBefore>& orders, Diagnostics& faults)
      : plan_(plan), orders_(orders), faults_(faults) {}

  void run() {
    const std::vector<Tie> ties = ties_of(plan_);
    if (!ties.empty() && is_asynchronous(plan_))
      faults_.add("{} are in stages that update at different times: their copies would differ", weights(ties.front()));
    for (const Tie& tie : ties) check_tie(tie);
    for (const Program& program : plan_.programs)
      for (ActionId id = 0; id < std::ssize(program.actions); ++id) {
        const Action& a = program.actions[static_cast<std::size_t>(id)];
        if (is_tied_sum(a) && std::ranges::find(ties, a.slice, &Tie::slice) == ties.end())
          faults_.add("{} sums gradients over programs, but no other program has a copy of these weights",
                      place(program, id));
      }
  }

 private:
  const Program& program(int r) const { return plan_.programs[static_cast<std::size_t>(r)]; }
  std::string weights(const Tie& tie) const {
    std::string parts;
    for (const PartInfo& part : plan_.parts)
      if (uses(part, tie.slice)) parts += (parts.empty() ? "'" : ", '") + part.name + "'";
    return fmt::format("weights [{}, {}) that parts {} share", tie.slice.begin, tie.slice.end, parts);
  }

  void check_tie(const Tie& tie) {
    const std::size_t before = faults_.size();
    for (const int r : tie.programs) check_sum(tie, r);
    if (faults_.size() > before) return;
    for (const int r : tie.programs)
      if (treatment(tie, r) != treatment(tie, tie.owner))
        faults_.add(
            "{}: program {} does not reduce, update and average them as program {} does, so that their copies "
            "would differ:\n{}where the other has\n{}",
            weights(tie), program(r).name, program(tie.owner).name, treatment(tie, r), treatment(tie, tie.owner));
  }

  void check_sum(const Tie& tie, int r) {
    const Program& p = program(r);
    const std::vector<ActionId> sums = tied_sums(p, tie.slice);
    if (sums.empty())
      return faults_.add(
          "{} get gradients in programs {}, and program {} does not sum them over these: use pipeline(), "
          "which does, or cut so that one stage has these parts",
          weights(tie), fmt::join(tie.programs, ", "), p.name);
    if (sums.size() > 1)
      return faults_.add("{} have gradients that program {} sums {} times, by actions {}", weights(tie), p.name,
                         sums.size(), fmt::join(sums, ", "));
    const Action& sum = p.actions[static_cast<std::size_t>(sums[0])];
    if (sum.slice != tie.slice || sum.peer.axis != plan_.stage_axis || sum.peer.members != tie.programs)
      faults_.add("{}: {} does not sum all of them over all programs that have a copy, which are {} along '{}'",
                  weights(tie), place(p, sums[0]), fmt::join(tie.programs, ", "), plan_.stage_axis);
    check_order(tie, r, sums[0]);
  }

  void check_order(const Tie& tie, int r, ActionId sum) {
    const Program& p = program(r);
    const HappensBefore& order = orders_[static_cast<std::size_t>(r)];
    const auto first = [&](ActionId a, ActionId b) { return order.across_steps(a, b); };
    const auto operands = accesses(plan_, p);
    for (ActionId id = 0; id < std::ssize(p.actions); ++id) {
      const Action& a = p.actions[static_cast<std::size_t>(id)];
      const bool makes = completes(a) && uses(plan_.parts[static_cast<std::size_t>(a.part)], tie.slice);
      if (makes && !first(id, sum))
        faults_.add(
            "{}: their gradients are summed over programs by action {} of program {} before the backward that "
            "completes them, action {}",
            weights(tie), sum, p.name, id);
      if (makes || id == sum || is_backward(a)) continue;
      const std::vector<Operand>& own = operands[static_cast<std::size_t>(id)];
      if (is_collective(a) && a.kind != ActionKind::agree) {
        for (const Operand& o : own)
          if (o.written && o.kind == OperandKind::gradients && o.slice.overlaps(tie.slice) && !first(id, sum))
            faults_.add(
                "{}: {} sums their gradients over ranks after they are summed over programs, by action {}: transports "
                "may add in other orders in other programs, and the copies would differ. Sum over programs last",
                weights(tie), place(p, id), sum);
        continue;
      }
      for (const Operand& o : own)
        if (o.kind == OperandKind::gradients && o.slice.overlaps(tie.slice) && !first(sum, id))
          faults_.add("{}: {} uses their gradients before they are summed over programs, by action {}", weights(tie),
                      place(p, id), sum);
    }
  }

  /// The actions of the program on its copy, without passes, drops and gathers, as a text. Copies stay equal if the
  /// texts of all programs are equal.
  std::string treatment(const Tie& tie, int r) const {
    const Program& p = program(r);
    const auto operands = accesses(plan_, p);
    std::string text;
    for (std::size_t id = 0; id < operands.size(); ++id) {
      const Action& a = p.actions[id];
      const bool moves = a.kind == ActionKind::drop || a.kind == ActionKind::all_gather;
      if (is_pass(a) || moves || is_tied_sum(a) || a.kind == ActionKind::agree) continue;
      const auto touches = [&](const Operand& o) {
        return o.written && (o.kind == OperandKind::weights || o.kind == OperandKind::gradients) &&
               o.slice.overlaps(tie.slice);
      };
      if (!std::ranges::any_of(operands[id], touches)) continue;
      Action alike = a;
      alike.on_ready = false;
      alike.phase = 0;
      text += to_string(alike) + " " + to_string(p.trigger(a)) + "\n";
    }
    return text;
  }

  const Plan& plan_;
  const std::vector<HappensBefore>& orders_;
  Diagnostics& faults_;
};

}  // namespace

void check_ties(const Plan& plan, const std::vector<HappensBefore>& orders, Diagnostics& faults) {
  Ties(plan, orders, faults).run();
}

}  // namespace trireme
