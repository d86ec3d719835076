// Local SGD (Stich, arXiv 1805.09767; post-local: Lin et al., arXiv 1808.07217) and elastic averaging (Zhang et al.,
// arXiv 1412.6651): each rank trains on its own rows, and all meet every few steps.
#include "framework/autograd/tape.h"
#include "framework/ops/ops.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/ties.h"
#include "parallel/strategies/mixing.h"

namespace trireme {
namespace {

Access weights_and(const Action& a, std::initializer_list<const char*> states) {
  Access all{{}, {{.kind = OperandKind::weights, .slice = a.slice}}};
  for (const char* name : states) all.writes.push_back({.kind = OperandKind::state, .slice = a.slice, .name = name});
  return all;
}

constexpr const char *outer = "outer.weights", *velocity = "outer.momentum", *center = "elastic.center";

/// From the weights o behind the last average to w = o - lr v, where v = momentum v + (o - mean of weights): a step of
/// SGD with momentum on what the workers moved by (Wang et al., SlowMo, arXiv 1910.00643).
const ActionRow outer_update{.name = "outer_update",
                             .letter = 'O',
                             .access =
                                 [](const Plan&, const Program&, const Liveness&, const Action& a) {
                                   return weights_and(a, {outer, velocity});
                                 },
                             .memory = memory_of_slices<3>,
                             .vector_ops = vector_ops<8>,
                             .start =
                                 [](ActionContext& now) {
                                   const Tensor o = now.state(outer), v = now.state(velocity), w = now.values();
                                   v.copy_from(add(scale(v, now.argument("momentum")), sub(o, w)));
                                   o.copy_from(sub(o, scale(v, now.argument("lr"))));
                                   w.copy_from(o);
                                   return Work();
                                 }};

/// Weights w and the center c draw each other: w - a (w - c), and c + a times the sum of (w - c) over the ranks.
const ActionRow elastic{
    .name = "elastic",
    .letter = 'Z',
    .is_collective = true,
    .access = [](const Plan&, const Program&, const Liveness&, const Action& a) { return weights_and(a, {center}); },
    .calls =
        [](const Action& a, int, Index element) {
          return std::vector{PlannedCall{CallKind::all_reduce, a.slice.size() * element}};
        },
    .memory = memory_of_slices<2>,
    .vector_ops = vector_ops<5>,
    .start =
        [](ActionContext& now) {
          const int ranks = now.comm ? now.comm->size() : 1;
          const double rho = now.argument("rho");
          const double a = rho > 0 ? rho * now.optimizer.rate() : 0.9 / ranks;
          check(a * ranks <= 1, "easgd",
                "{} ranks times the learning rate {} times rho {} is above 1, where the center "
                "overshoots: use a smaller rho",
                ranks, now.optimizer.rate(), rho);
          const Tensor pull = scale(sub(now.values(), now.state(center)), a);
          now.values().copy_from(sub(now.values(), pull));
          now.memory = pull;
          return now.comm ? now.comm->all_reduce(pull) : Work();
        },
    .finish =
        [](ActionContext& now) { add_into(now.state(center), std::any_cast<Tensor>(std::exchange(now.memory, {}))); }};

}  // namespace

std::string to_string(const LocalSgdOptions& o) {
  return fmt::format("every={}, outer_lr={}, outer_momentum={}, from_epoch={}, axis={}", o.every, o.outer_lr,
                     o.outer_momentum, o.from_epoch, o.axis);
}

Strategy local_sgd(LocalSgdOptions o) {
  check(o.every > 0 && o.from_epoch >= 0, "local_sgd", "every={}, from_epoch={}: at least 1 step, and epoch 0", o.every,
        o.from_epoch);
  check(o.outer_lr > 0 && o.outer_momentum >= 0 && o.outer_momentum < 1, "local_sgd",
        "outer_lr={}, outer_momentum={}: wants a rate above 0, and a momentum in [0, 1)", o.outer_lr, o.outer_momentum);
  const auto rewrite = [o](Plan plan) {
    check_apart(plan, o.axis, "local_sgd");
    check(o.from_epoch == 0 || plan.epoch_steps > 0, "local_sgd",
          "from_epoch={} wants to know how many steps an epoch has (StepOptions::epoch_steps)", o.from_epoch);
    const std::int64_t from = o.from_epoch * plan.epoch_steps;
    const bool slow = o.outer_lr != 1 || o.outer_momentum > 0;
    if (from > 0)
      for (std::size_t r = 0; r < plan.programs.size(); ++r)
        for (const Slice& slice : plan.updated(r)) {
          Program& program = plan.programs[r];
          Action mean{.kind = action_rows::mean, .slice = slice, .payload = Payload::gradients};
          mean.peer.axis = o.axis;
          mean.phase = add_phase(program, "synchronous", {.until = from});
          const std::vector<ActionId> sums = tied_sums(program, slice);  // copies are summed last
          ActionId next = sums.empty() ? 0 : sums[0];
          while (sums.empty() && program.actions[static_cast<std::size_t>(next)].kind != ActionKind::update) ++next;
          if (!sums.empty()) mean.after = program.actions[static_cast<std::size_t>(next)].after;
          insert(program, next, std::move(mean));
          if (!sums.empty()) program.actions[static_cast<std::size_t>(next) + 1].after.push_back(next);
        }
    const Trigger meet{.every = o.every, .offset = (from + o.every - 1) % o.every, .from = from};
    const std::string phase = "average over " + o.axis;
    mix_weights(plan, {.kind = action_rows::mean, .payload = Payload::weights}, o.axis, phase, meet);
    if (slow) {
      Action update{.kind = outer_update};
      update.arguments = {{"lr", o.outer_lr}, {"momentum", o.outer_momentum}};
      mix_weights(plan, update, "", phase, meet);
      remember_weights(plan, outer, from);
      plan.state.push_back({.name = velocity, .extent = State::Extent::replicated});
    }
    plan.consistency[o.axis] = {Consistency::Kind::periodic, o.every};
    return plan;
  };
  return apart({"local_sgd", Claim::statistical, rewrite, to_string(o)});
}

Strategy easgd(int every, double rho, const std::string& axis) {
  check(every > 0 && rho >= 0, "easgd", "every={}, rho={}: at least 1 step, and a rho of 0 (chosen) or more", every,
        rho);
  const auto rewrite = [=](Plan plan) {
    check_apart(plan, axis, "easgd");
    Action meet{.kind = elastic};
    meet.arguments = {{"rho", rho}};
    mix_weights(plan, meet, axis, "meet over " + axis, {.every = every, .offset = every - 1});
    remember_weights(plan, center, 0);
    plan.consistency[axis] = {Consistency::Kind::gossip, every};
    return plan;
  };
  return apart({"easgd", Claim::statistical, rewrite, fmt::format("every={}, rho={}, axis={}", every, rho, axis)});
}

}  // namespace trireme
