// The part of check(plan) that follows micro-batches through the parts.
#include <map>
#include <optional>
#include <tuple>

#include "parallel/plan/check/diagnostics.h"
#include "parallel/plan/liveness.h"

namespace trireme {
namespace {

/// The position of each pass of a part and micro-batch, and of each message over the cut after the part.
class Flow {
 public:
  struct At {
    std::size_t program;
    ActionId id;
  };
  using Found = std::optional<At>;

  Flow(const Plan& plan, const std::vector<HappensBefore>& orders, Diagnostics& faults)
      : plan_(plan), orders_(orders), faults_(faults) {
    for (std::size_t r = 0; r < plan.programs.size(); ++r)
      for (ActionId id = 0; id < static_cast<int>(plan.programs[r].actions.size()); ++id) enter({r, id});
  }

  void check_all() {
    for (int m = 0; m < plan_.microbatches; ++m) {
      if (!find(ActionKind::loss, -1, m)) faults_.add("micro-batch {} has no loss: add an action loss", m);
      for (int p = 0; p < static_cast<int>(plan_.parts.size()); ++p) check_part(p, m);
    }
  }

 private:
  static constexpr int any_program = -1;  // of a pass: one program has it
  void enter(At at) {
    const Action& a = action(at);
    if (!is_message(a) && !is_pass(a)) return;
    const int program = is_message(a) ? static_cast<int>(at.program) : any_program;
    auto [first, fresh] = found_.try_emplace({a.kind, a.payload, program, a.part, a.microbatch.index}, at);
    if (!fresh && program == any_program) faults_.add("{} repeats {}", name(at), name(first->second));
  }
  const Action& action(At at) const { return plan_.programs[at.program].actions[at.id]; }
  std::string name(At at) const { return place(plan_.programs[at.program], at.id); }
  Found find(ActionKind v, int part, int microbatch, OperandKind payload = {}, int program = any_program) const {
    auto at = found_.find({v, payload, program, part, microbatch});
    return at == found_.end() ? std::nullopt : Found(at->second);
  }

  void in_order(Found a, Found b) {
    if (!a || !b) return;
    if (a->program != b->program)
      faults_.add(
          "{} needs the result of {}, which is on another program: run both on one program, or add a send and a recv",
          name(*b), name(*a));
    else if (!orders_[a->program].across_steps(a->id, b->id))
      faults_.add("{} does not wait for {}", name(*b), name(*a));
  }
  /// Checks that the result of a reaches b: on one program by order, else by a message with this payload of the part.
  void hands_over(Found a, Found b, int part, int microbatch, OperandKind what) {
    if (!a || !b || a->program == b->program) return in_order(a, b);
    const Found send = find(ActionKind::send, part, microbatch, what, static_cast<int>(a->program)),
                recv = find(ActionKind::recv, part, microbatch, what, static_cast<int>(b->program));
    if (!send && !recv)
      faults_.add("{} has no {}: no message brings it from program {}", name(*b),
                  what == OperandKind::activation ? "input" : "gradient", plan_.programs[a->program].name);
    in_order(a, send);
    in_order(recv, b);  // check_messages() checks that send and recv match
  }

  void check_part(int p, int m) {
    const Found forward = find(ActionKind::forward, p, m), whole = find(ActionKind::backward, p, m);
    const Found input = find(ActionKind::backward_input, p, m), weight = find(ActionKind::backward_weight, p, m);
    const auto part = fmt::format("part {} ('{}') micro {}", p, plan_.parts[p].name, m);
    if (!forward) faults_.add("{} is never run forward", part);
    if (!whole && !weight) faults_.add("{} is never run backward", part);
    if (whole && (input || weight)) faults_.add("{} is run backward whole and in halves", part);
    in_order(forward, whole);
    in_order(forward, input);
    in_order(input, weight);
    hands_over(find(ActionKind::forward, p - 1, m), forward, p - 1, m, OperandKind::activation);
    const Found own = whole ? whole : input, behind = find(ActionKind::backward, p + 1, m);
    hands_over(behind ? behind : find(ActionKind::backward_input, p + 1, m), own, p, m, OperandKind::cotangent);
    if (p + 1 < static_cast<int>(plan_.parts.size())) return;
    const Found loss = find(ActionKind::loss, -1, m);
    in_order(forward, loss);
    in_order(loss, own);
  }

  const Plan& plan_;
  const std::vector<HappensBefore>& orders_;
  Diagnostics& faults_;
  /// By kind, operand and program of a message, part, micro-batch.
  std::map<std::tuple<ActionKind, OperandKind, int, int, int>, At> found_;
};

/// Lifetimes of micro-batches' activations: none is used after its `free`, and no more are held at once than
/// Program::in_flight.
void check_held(const Program& program, const HappensBefore& order, Diagnostics& faults) {
  const int n = static_cast<int>(program.actions.size());
  const Liveness live(program);
  std::map<std::pair<int, int>, std::vector<ActionId>> uses, frees;  // by segment, micro
  for (ActionId id = 0; id < n; ++id) {
    const Action& a = program.actions[id];
    const int segment = live.segment_of(a.part);
    if (segment < 0 || a.kind == ActionKind::recv) continue;
    (a.kind == ActionKind::free ? frees : uses)[{segment, a.microbatch.index}].push_back(id);
  }
  for (auto& [held, ids] : frees) {
    if (ids.size() > 1) faults.add("{} frees activations that action {} has freed", place(program, ids[1]), ids[0]);
    for (ActionId use : uses[held])
      if (!order.across_steps(use, ids[0]))
        faults.add("{} uses activations that action {} frees before", place(program, use), ids[0]);
  }
  const auto alive = live.totals([](const Liveness::Range&) { return 1; });
  for (const Liveness::Range& r : live.ranges)
    if (program.in_flight > 0 && alive[r.begin] > program.in_flight)
      faults.add("{} makes {} micro-batches in flight, but Program::in_flight allows {}", place(program, r.begin),
                 alive[r.begin], program.in_flight);
}

}  // namespace

void check_flow(const Plan& plan, const std::vector<HappensBefore>& orders, Diagnostics& faults) {
  Flow(plan, orders, faults).check_all();
  for (std::size_t r = 0; r < plan.programs.size(); ++r) check_held(plan.programs[r], orders[r], faults);
}

}  // namespace trireme
